package delayed_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/outbox"
)

func (f *fixture) cancelKey(ctx context.Context, key string) (cancelled bool) {
	f.T.Helper()
	require.NoError(f.T, f.in(func(_ context.Context, tx bun.Tx) (err error) {
		cancelled, err = f.Delayed().CancelKey(ctx, tx, key)
		return err
	}))
	return cancelled
}

// A key is that of one event after the other. It is free when the event was cancelled, and when its time has come.
func TestCancelKey(t *testing.T) {
	f := newFixture(t, nil)
	require.NoError(t, f.Upkeep().EnsurePartitions(t.Context()))
	key := event.WithDedupKey("hold 7")
	require.False(t, f.cancelKey(t.Context(), "hold 7"), "there is none")
	require.ErrorIs(t, f.in(func(ctx context.Context, tx bun.Tx) error {
		_, err := f.Delayed().CancelKey(ctx, tx, "")
		return err
	}), event.ErrInvalid)
	f.Record("a", "logged", tomorrow, key)
	require.False(t, f.cancelKey(event.WithTenant(t.Context(), "acme"), "hold 7"), "of another tenant")
	require.ErrorIs(t, f.in(func(ctx context.Context, tx bun.Tx) error {
		cancelled, err := f.Delayed().CancelKey(ctx, tx, "hold 7")
		require.NoError(t, err)
		require.True(t, cancelled)
		return sql.ErrTxDone // it is dropped
	}), sql.ErrTxDone)
	require.Contains(t, f.Statuses(), "logged")
	require.True(t, f.cancelKey(t.Context(), "hold 7"))
	require.Empty(t, f.Statuses())

	f.Record("a", "held", tomorrow, key)
	f.delay(f.Fetch()...)
	f.Record("a", "repeats it", tomorrow, key)
	require.Len(t, f.Statuses(), 1)
	require.True(t, f.cancelKey(t.Context(), "hold 7"))
	require.Empty(t, f.Statuses())
	require.False(t, f.cancelKey(t.Context(), "hold 7"), "a second time")

	f.Record("a", "due", event.WithNotBefore(time.Now().Add(-time.Second)), key)
	require.False(t, f.cancelKey(t.Context(), "hold 7"), "its time has come")
	f.Record("a", "next", tomorrow, key)
	require.Len(t, f.Statuses(), 2)
	require.True(t, f.cancelKey(t.Context(), "hold 7"))
	require.Len(t, f.Statuses(), 1)
}

// Of two units that replace the event of a key, the second waits for the first and cancels what the first has scheduled.
func TestCancelKeyOfTwoUnits(t *testing.T) {
	f := newFixture(t, nil)
	key := event.WithDedupKey("hold 7")
	f.Record("a", "first", tomorrow, key)
	tx, err := f.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	cancelled, err := f.Delayed().CancelKey(t.Context(), tx, "hold 7")
	require.NoError(t, err)
	require.True(t, cancelled)
	_, err = f.Add(t.Context(), tx, "order", []byte("second"), event.WithType("second"), tomorrow, key)
	require.NoError(t, err)

	other := make(chan bool, 1)
	go func() { other <- f.cancelKey(t.Context(), "hold 7") }()
	f.AwaitLocks("outbox_dedup", 1, "the other unit waits for the key")
	require.NoError(t, tx.Commit())
	require.True(t, await.Receive(t, other, "the other unit"))
	require.Empty(t, f.Statuses())
	require.Zero(t, f.Count("outbox_dedup"))
}

// The key of a delayed event is remembered until its time and for as long again as any other key, whoever schedules it.
func TestKeyOfADelayedEventIsRemembered(t *testing.T) {
	f := newFixture(t, &outbox.Config{DedupRetention: time.Hour})
	f.Record("a", "by time", tomorrow, event.WithDedupKey("time"))
	f.Record("a", "by delay", event.WithDelay(24*time.Hour), event.WithDedupKey("delay"))
	f.Record("a", "at once", event.WithDedupKey("at once"))
	f.Exec(`SELECT oncebox_add(topic => 'order', event_type => 'by SQL', payload => '{}', source => 'test', dedup_key => 'SQL',
		not_before => now() + interval '1 day')`)
	keys := func() (left []string) {
		require.NoError(t, f.Clean(t.Context()))
		require.NoError(t, f.DB.NewRaw("SELECT dedup_key FROM outbox_dedup ORDER BY dedup_key").Scan(t.Context(), &left))
		return left
	}
	require.Equal(t, []string{"SQL", "at once", "delay", "time"}, keys())
	f.Exec("UPDATE outbox_dedup SET created_at = created_at - interval '2 hours'")
	require.Equal(t, []string{"SQL", "delay", "time"}, keys())
	f.Exec("UPDATE outbox_dedup SET created_at = created_at - interval '24 hours'")
	require.Empty(t, keys())
}
