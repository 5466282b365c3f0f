package outbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
)

// Delayed events are cancelled and moved by hand, wherever they are, each with an entry in the audit.
func TestDelayedByHand(t *testing.T) {
	f := newFixture(t, nil)
	ctx := t.Context()
	waiting, held, moved := f.add("a", "waiting", tomorrow), f.add("b", "held", tomorrow), f.add("c", "moved", tomorrow)
	for _, r := range f.fetch() {
		if r.ID == held {
			f.delay(r)
		}
	}
	by := operator.By{Actor: "ann", Reason: "the order was cancelled"}
	require.ErrorContains(t, f.CancelDelayed(ctx, waiting, operator.By{Actor: "ann"}), "By.Reason is empty")
	require.NoError(t, f.CancelDelayed(ctx, waiting, by))
	require.NoError(t, f.CancelDelayed(ctx, held, by))
	require.NoError(t, f.MoveDelayed(ctx, moved, time.Now().Add(time.Hour), operator.By{Actor: "bob"}))

	left, err := f.Delayed(ctx, f.db.DB, outbox.DelayedFilter{}, nil, 0)
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.Equal(t, moved, left[0].ID)
	require.WithinDuration(t, time.Now().Add(time.Hour), left[0].Delivery.NotBefore, time.Minute)

	for id, want := range map[string][]string{waiting: {"ann", "cancel", "waiting"}, held: {"ann", "cancel", "held"}, moved: {"bob", "reschedule", "moved"}} {
		entries, err := f.Audit(ctx, operator.AuditFilter{EventID: id}, nil, 0)
		require.NoError(t, err)
		require.Len(t, entries, 1)
		require.Equal(t, want, []string{entries[0].Actor, string(entries[0].Action), entries[0].Type})
	}

	// What cannot be done leaves no entry.
	plain := f.add("d", "plain")
	for _, id := range []string{waiting, plain} {
		before, err := f.Audit(ctx, operator.AuditFilter{EventID: id}, nil, 0)
		require.NoError(t, err)
		require.ErrorIs(t, f.CancelDelayed(ctx, id, by), outbox.ErrTooLate)
		require.ErrorIs(t, f.MoveDelayed(ctx, id, time.Now(), by), outbox.ErrTooLate)
		after, err := f.Audit(ctx, operator.AuditFilter{EventID: id}, nil, 0)
		require.NoError(t, err)
		require.Equal(t, before, after)
	}
	require.ErrorIs(t, f.CancelDelayed(event.WithTenant(ctx, "globex"), moved, by), outbox.ErrTooLate, "another tenant")
}
