package pulsar

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
)

// backlogOf asks until the broker says what is expected: its counts are a moment late.
func backlogOf(t *testing.T, r messaging.Receiver, want int64) messaging.Backlog {
	t.Helper()
	ctx := patient(t)
	var b messaging.Backlog
	await.True(t, func() bool {
		var err error
		b, err = r.(messaging.BacklogReceiver).Backlog(ctx)
		return err == nil && b.Messages == want
	}, "a backlog of %d", want)
	return b
}

func TestBacklog(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]messaging.SubscriptionType{"failover": messaging.Failover, "key_shared": messaging.KeyShared} {
		t.Run(name, func(t *testing.T) {
			n := pulsartest.Open(t)
			cfg := declared(n, "order", "s")
			cfg.DisableBatching = true
			b := connect(t, cfg)
			r, err := b.Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "s", Type: kind})
			require.NoError(t, err)
			require.Zero(t, backlogOf(t, r, 0).Settled)
			require.NoError(t, b.Publish(patient(t), series("order", 5, 2)))
			before := backlogOf(t, r, 10)
			require.Equal(t, "order", before.Topic)

			receiveAll(t, r, 10)
			require.NotEqual(t, before.Settled, backlogOf(t, r, 0).Settled)
			require.NoError(t, r.Close())
			_, err = r.(messaging.BacklogReceiver).Backlog(t.Context())
			require.ErrorIs(t, err, messaging.ErrClosed)
		})
	}
}

// A consumer that has no partition is not told what the others have before them.
func TestBacklogOfAStandby(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	cfg := declared(n, "order", "s")
	cfg.DisableBatching, cfg.Partitions = true, 1
	b := connect(t, cfg)
	var all []messaging.Receiver
	for _, name := range []string{"a", "b"} {
		r, err := b.Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "s", Consumer: name})
		require.NoError(t, err)
		all = append(all, r)
	}
	require.NoError(t, b.Publish(patient(t), series("order", 3, 1)))
	ctx := patient(t)
	var sum, most int64
	await.True(t, func() bool {
		sum, most = 0, 0
		for _, r := range all {
			b, err := r.(messaging.BacklogReceiver).Backlog(ctx)
			if err != nil {
				return false
			}
			sum, most = sum+b.Messages, max(most, b.Messages)
		}
		return most == 3 && sum == most // both may be counted at first, or neither
	}, "one of them, and only one, is told the backlog")
}

func TestBacklogOfATopicWithoutPartitions(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	cfg := config(n)
	cfg.AdminURL, cfg.AdminTimeout, cfg.DisableBatching = "http://127.0.0.1:1", time.Millisecond, true
	blind := connect(t, cfg)
	r, err := blind.Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "s"})
	require.NoError(t, err)
	_, err = r.(messaging.BacklogReceiver).Backlog(t.Context())
	require.ErrorIs(t, err, errNoAdmin)

	require.NoError(t, blind.Publish(patient(t), series("order", 2, 1)))
	seeing := connect(t, config(n))
	other, err := seeing.Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "s", Type: messaging.Failover, Consumer: "z"})
	require.NoError(t, err)
	parts, err := seeing.keeper.Admin.Backlogs(patient(t), "order", "s")
	require.NoError(t, err)
	require.Len(t, parts, 1)
	require.NoError(t, other.Close())
}
