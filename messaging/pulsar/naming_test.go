package pulsar

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
)

// A name that the rule lets pass is a topic of the broker: it can be made, published to, subscribed to, and
// found by the admin API.
func TestNamesThatTheRuleTakes(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	cfg := config(n)
	cfg.Partitions = 1
	b := connect(t, cfg)
	for _, name := range []string{
		".a", `a\b "c" * #?&=;`, "> $SYS ~ ä \u4e16", "partition-1",
		strings.Repeat("x", event.MaxIdentifier), strings.Repeat("\u4e16", event.MaxIdentifier/3),
	} {
		require.NoError(t, ValidateTopic(name), "%q", name)
		require.NoError(t, b.Declare(t.Context(), []string{name}, nil), "%q", name)
		require.NoError(t, b.Publish(t.Context(), series(name, 1, 1)), "%q", name)
		r, err := b.Subscribe(t.Context(), messaging.Subscription{Topic: name, Name: name})
		require.NoError(t, err, "%q", name)
		receiveAll(t, r, 1)
		require.NoError(t, r.Close(), "%q", name)
		subscriptions, err := b.keeper.Admin.Subscriptions(t.Context(), name+"-partition-0")
		require.NoError(t, err, "%q", name)
		require.Contains(t, subscriptions, name)
	}
}

// A name that the rule refuses is refused by every call, by the same rule.
func TestNamesThatTheRuleRefuses(t *testing.T) {
	t.Parallel()
	b := connect(t, config(pulsartest.Open(t)))
	for _, name := range []string{
		"", ".", "..", "a..b", "a/b", "/", "a%2Fb", "%", "a+b", "+", "a-partition-0", "-partition-12", "-partition-", "a-partition-x",
		" a", "a ", " ", "\u00a0a", "a\u3000", "a\n", "a\x00b", "a\u0085", "a\xff", strings.Repeat("x", event.MaxIdentifier+1),
	} {
		require.ErrorIs(t, ValidateTopic(name), event.ErrInvalid, "%q", name)
		require.ErrorIs(t, b.ValidateTopic(name), event.ErrInvalid, "%q", name)
		require.ErrorIs(t, (&Config{URL: "pulsar://b", Topics: []string{name}}).Validate(), event.ErrInvalid, "%q", name)
		s := messaging.Subscription{Topic: name, Name: "billing"}
		require.ErrorIs(t, (&Config{URL: "pulsar://b", Subscriptions: []messaging.Subscription{s}}).Validate(), event.ErrInvalid, "%q", name)
		require.ErrorIs(t, b.ValidateSubscription(s), event.ErrInvalid, "%q", name)
		require.ErrorIs(t, b.Declare(t.Context(), []string{name}, nil), event.ErrInvalid, "%q", name)
		require.ErrorIs(t, b.Declare(t.Context(), nil, []messaging.Subscription{s}), event.ErrInvalid, "%q", name)
		_, err := b.Subscribe(t.Context(), s)
		require.ErrorIs(t, err, event.ErrInvalid, "%q", name)
		err = b.Publish(t.Context(), series(name, 1, 1))
		require.ErrorIs(t, err, event.ErrInvalid, "%q", name)
		require.True(t, messaging.IsPermanent(err), "%q: %v", name, err)
	}
	for _, name := range []string{"", ".", "..", " a", "a ", "a%b", "a+b", "a\n"} {
		require.Error(t, b.ValidateSubscription(messaging.Subscription{Topic: "a", Name: name}), "%q", name)
	}
	require.NoError(t, b.ValidateSubscription(messaging.Subscription{Topic: "a", Name: fmt.Sprint("Rechnung ß / ", 1)}))
}
