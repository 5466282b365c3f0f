package projector_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox/delayed"
)

func TestDelayedEventBlocksNobody(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.add("a", "placed")
	f.add("a", "reminder", event.WithNotBefore(time.Now().Add(24*time.Hour)))
	f.add("a", "paid")
	p := f.projector(quick())
	require.NoError(t, p.RunOnce(t.Context()))
	require.Equal(t, []string{"placed", "paid"}, f.pub.types())
	require.Zero(t, f.rows("outbox_block"))
	require.Equal(t, 1, f.rows("outbox_held"))
	found, err := f.store.State().Disorder(t.Context())
	require.NoError(t, err)
	require.Empty(t, found)
}

// Its time has come before anybody has looked at it.
func TestDelayedEventThatIsDueAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.add("a", "reminder", event.WithNotBefore(time.Now().Add(-time.Second)))
	require.NoError(t, f.projector(quick()).RunOnce(t.Context()))
	require.Equal(t, []string{"reminder"}, f.pub.types())
	e := f.pub.events()[0]
	require.Equal(t, id, e.RoutingKey)
	require.Equal(t, id, e.Delivery.OrderingKey, "consumers do not put it behind its aggregate either")
	require.Zero(t, f.rows("outbox_held"))
}

// cancelling begins a transaction that cancels an event, and returns when the event's time has come. held: a projector has looked
// at the event before.
func (f *fixture) cancelling(held bool) bun.Tx {
	f.t.Helper()
	return f.changing(held, func(tx bun.Tx, id string) error { return f.store.Delayed().Cancel(f.t.Context(), tx, id) })
}

// moving is cancelling for a transaction that gives the event a time tomorrow.
func (f *fixture) moving(held bool) bun.Tx {
	f.t.Helper()
	return f.changing(held, func(tx bun.Tx, id string) error {
		return f.store.Delayed().Reschedule(f.t.Context(), tx, id, time.Now().Add(24*time.Hour))
	})
}

func (f *fixture) changing(held bool, change func(tx bun.Tx, id string) error) bun.Tx {
	f.t.Helper()
	for delay := 2 * time.Second; ; delay *= 2 { // until the cancel is in time on a machine that is busy
		tx, err := f.db.BeginTx(f.t.Context(), nil)
		require.NoError(f.t, err)
		f.t.Cleanup(func() { _ = tx.Rollback() })
		at := time.Now().Add(delay)
		id := f.add("a", "reminder", event.WithNotBefore(at))
		if held {
			require.NoError(f.t, f.projector(quick()).RunOnce(f.t.Context()))
		}
		if err := change(tx, id); err != nil {
			require.ErrorIs(f.t, err, delayed.ErrTooLate)
			require.NoError(f.t, tx.Rollback())
			require.NoError(f.t, f.projector(quick()).RunOnce(f.t.Context()))
			f.pub.forget()
			_, err := f.db.Exec("DELETE FROM outbox; DELETE FROM outbox_sent")
			require.NoError(f.t, err)
			continue
		}
		f.eventually("the time comes", func() (come bool) {
			require.NoError(f.t, f.db.QueryRow("SELECT clock_timestamp() > ?", at.Add(10*time.Millisecond)).Scan(&come))
			return come
		})
		return tx
	}
}

// forget forgets what was taken.
func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken = nil
}

// The cancelling transaction is still open when the time comes, and the projector sees the row.
func TestCancelledEventIsNotPublishedWhileTheTransactionIsOpen(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]bool{"not fetched": false, "held": true} {
		for end, dropped := range map[string]bool{"committed": false, "rolled back": true} {
			t.Run(name+", "+end, func(t *testing.T) {
				f := newFixture(t)
				tx := f.cancelling(held)
				p := f.projector(quick())
				require.NoError(t, p.RunOnce(t.Context()))
				require.Empty(t, f.pub.types())
				if dropped {
					require.NoError(t, tx.Rollback())
				} else {
					require.NoError(t, tx.Commit())
				}
				require.NoError(t, p.RunOnce(t.Context()))
				if dropped {
					require.Equal(t, []string{"reminder"}, f.pub.types())
					return
				}
				require.Empty(t, f.pub.types())
				require.Empty(t, f.statuses())
			})
		}
	}
}

// The projector has read the row as due when the transaction commits that cancels or moves it.
func TestEventThatIsCancelledWhileAProjectorHasItInMemory(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]bool{"not fetched": false, "held": true} {
		t.Run(name+", cancelled", func(t *testing.T) {
			f := newFixture(t)
			f.commitsBehindTheRead(f.cancelling(held), held)
			require.Empty(t, f.pub.types())
			require.Empty(t, f.statuses())
		})
		t.Run(name+", moved", func(t *testing.T) {
			f := newFixture(t)
			f.commitsBehindTheRead(f.moving(held), held)
			require.Empty(t, f.pub.types())
			require.Contains(t, f.statuses(), "reminder")
		})
	}
}

// commitsBehindTheRead runs a projector once. tx commits as soon as the projector has read the row.
func (f *fixture) commitsBehindTheRead(tx bun.Tx, held bool) {
	f.t.Helper()
	read := "ORDER BY o.seq LIMIT" // the fetch
	if held {
		read = "ORDER BY h.retry_after LIMIT 100"
	}
	var committed atomic.Bool
	store := f.tapped(&tap{ended: func(statement string) {
		if strings.Contains(statement, read) && committed.CompareAndSwap(false, true) {
			if err := tx.Commit(); err != nil {
				f.t.Error(err)
			}
		}
	}}, nil)
	cfg := patient()
	cfg.Workers, cfg.CleanInterval = 1, -1
	require.NoError(f.t, f.relay(f.pub, cfg, store).RunOnce(f.t.Context()))
	require.True(f.t, committed.Load())
}
