package kafka

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/oncebox/oncebox/messaging"
)

// A start that is refused leaves neither topics nor offsets behind: another service may have the names that it would have taken.
func TestRefusedDeclarationMakesNothing(t *testing.T) {
	t.Parallel()
	cfg := configOf(cluster(t).ListenAddrs()...)
	shop := connect(t, cfg)
	taken := messaging.Subscription{Topic: "taken", Name: "billing", Source: "shop"}
	require.NoError(t, shop.Declare(t.Context(), []string{"compacted", "held", "a.b"}, []messaging.Subscription{taken}))
	set(t, shop, "compacted", "cleanup.policy", "compact")
	held := messaging.Subscription{Topic: "held", Name: "billing", Source: "mailer"}
	foreign, lacking := taken, taken
	foreign.Source, lacking.Topic = "mailer", "lacking"
	for says, c := range map[string]struct {
		mode   string
		topics []string
		last   messaging.Subscription
	}{
		`"shop"`:                  {Make, []string{"fresh"}, foreign},
		"cleanup.policy=compact":  {Make, []string{"fresh", "compacted"}, held},
		"differs only in . and _": {Make, []string{"fresh", "a_b"}, held},
		"--create --topic " + shop.cfg.Prefix + "lacking": {Check, nil, lacking},
	} {
		mailer := *cfg
		mailer.Declare, mailer.Topics, mailer.Subscriptions = c.mode, c.topics, []messaging.Subscription{held, c.last}
		_, err := Connect(t.Context(), &mailer)
		require.ErrorContains(t, err, says)
		full := shop.cfg.names().FullName("fresh")
		found, err := admin(t, shop).ListTopics(t.Context(), full)
		require.NoError(t, err)
		require.ErrorIs(t, found.Error(), kerr.UnknownTopicOrPartition, says)
		_, err = admin(t, shop).FetchOffsets(t.Context(), shop.cfg.names().Group(held))
		require.ErrorIs(t, err, kerr.GroupIDNotFound, "%s: the subscription has a place", says)
	}
}
