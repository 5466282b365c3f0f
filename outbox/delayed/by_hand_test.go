package delayed_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox/delayed"
)

// Delayed events are cancelled and moved by hand, wherever they are, each with an entry in the audit.
func TestDelayedByHand(t *testing.T) {
	f := newFixture(t, nil)
	ctx := t.Context()
	waiting, held, moved := f.Record("a", "waiting", tomorrow), f.Record("b", "held", tomorrow), f.Record("c", "moved", tomorrow)
	for _, r := range f.Fetch() {
		if r.ID == held {
			f.delay(r)
		}
	}
	by := operator.By{Actor: "ann", Reason: "the order was cancelled"}
	require.ErrorContains(t, f.Delayed().CancelByHand(ctx, waiting, operator.By{Actor: "ann"}), "By.Reason is empty")
	require.NoError(t, f.Delayed().CancelByHand(ctx, waiting, by))
	require.NoError(t, f.Delayed().CancelByHand(ctx, held, by))
	require.NoError(t, f.Delayed().RescheduleByHand(ctx, moved, time.Now().Add(time.Hour), operator.By{Actor: "bob"}))

	left, err := f.Delayed().List(ctx, f.DB.DB, delayed.Filter{}, nil, 0)
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.Equal(t, moved, left[0].ID)
	require.WithinDuration(t, time.Now().Add(time.Hour), left[0].Delivery.NotBefore, 30*time.Minute)

	for id, want := range map[string][]string{waiting: {"ann", "cancel", "waiting"}, held: {"ann", "cancel", "held"}, moved: {"bob", "reschedule", "moved"}} {
		entries, err := f.Audit(ctx, operator.AuditFilter{EventID: id}, nil, 0)
		require.NoError(t, err)
		require.Len(t, entries, 1)
		require.Equal(t, want, []string{entries[0].Actor, string(entries[0].Action), entries[0].Type})
	}

	// An action that cannot be carried out leaves no entry.
	plain := f.Record("d", "plain")
	for _, id := range []string{waiting, plain} {
		before, err := f.Audit(ctx, operator.AuditFilter{EventID: id}, nil, 0)
		require.NoError(t, err)
		require.ErrorIs(t, f.Delayed().CancelByHand(ctx, id, by), delayed.ErrTooLate)
		require.ErrorIs(t, f.Delayed().RescheduleByHand(ctx, id, time.Now(), by), delayed.ErrTooLate)
		after, err := f.Audit(ctx, operator.AuditFilter{EventID: id}, nil, 0)
		require.NoError(t, err)
		require.Equal(t, before, after)
	}
	require.ErrorIs(t, f.Delayed().CancelByHand(event.WithTenant(ctx, "globex"), moved, by), delayed.ErrTooLate, "another tenant")
}
