package pulsar

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/brokers"
	"github.com/oncebox/oncebox/messaging/diagnosis"
)

// The faults themselves are planted in the tests of the doctor.
func TestExamineOnlyLooks(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	cfg := config(n)
	cfg.Subscriptions = []messaging.Subscription{owned("shop")}
	b := connect(t, cfg)
	found, err := b.Examine(t.Context(), diagnosis.Examination{})
	require.NoError(t, err)
	require.Empty(t, found)

	_, err = b.Examine(t.Context(), diagnosis.Examination{Topics: []string{"none"}})
	require.ErrorContains(t, err, "pulsar: examine topic none")
	all, err := b.keeper.Admin.ListTopics(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"order"}, all, "the topic was not made")

	require.NoError(t, b.Close())
	_, err = b.Examine(t.Context(), diagnosis.Examination{})
	require.ErrorIs(t, err, messaging.ErrBrokerDown)
}

// Only a topic that exists is looked up, because the broker may make another one.
func TestExisting(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		all, wanted []string
		want        string
	}{
		{nil, nil, ""},
		{nil, []string{"a"}, ""},
		{[]string{"a", "b"}, nil, "a"},
		{[]string{"a", "b"}, []string{"c", "b"}, "b"},
		{[]string{"a", "b"}, []string{"c"}, ""},
	} {
		require.Equal(t, c.want, existing(c.all, c.wanted), c)
	}
}

func TestKindReadsTheVariables(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	b, err := Kind().Connect(t.Context(), brokers.Options{Brief: true, Env: func(prefix string, cfg any) error {
		require.Equal(t, "ONCEBOX_PULSAR_", prefix)
		*cfg.(*Config) = *config(n)
		return nil
	}})
	require.NoError(t, err)
	require.NoError(t, b.Close())
	_, err = Kind().Connect(t.Context(), brokers.Options{Env: func(string, any) error { return nil }})
	require.ErrorContains(t, err, "ONCEBOX_PULSAR_URL")
}
