package projector_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
)

// A row that has expired, must wait or is refused says nothing before the row in front of it under its key has left. Held or dead
// earlier, it would block that one, which then waits behind its own successor.
func TestRowWithoutReceiptStaysInFrontOfLaterRows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		later    event.AddOption
		inFlight bool
	}{
		"delayed":                         {event.WithNotBefore(time.Now().Add(24 * time.Hour)), false},
		"delayed behind a row in flight":  {event.WithNotBefore(time.Now().Add(24 * time.Hour)), true},
		"expired":                         {event.WithExpiry(time.Now().Add(-time.Second)), false},
		"expired, behind a row in flight": {event.WithExpiry(time.Now().Add(-time.Second)), true},
		"refused":                         {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			answers := []error{messaging.ErrUnknown}
			f.pub.unfit = func(env event.Envelope) error {
				if c.later != nil || env.Type != "later" {
					return nil
				}
				return messaging.Permanent(errors.New("too large"))
			}
			f.pub.refuse = func(event.Envelope) (err error) {
				if len(answers) > 0 {
					err, answers = answers[0], answers[1:]
				}
				return err
			}
			inOrder := event.WithOrderingKey("a") // a delayed event of an aggregate has an order of its own
			f.add("a", "placed", inOrder)
			later := []event.AddOption{inOrder}
			if c.later != nil {
				later = append(later, c.later)
			}
			f.add("a", "later", later...)
			f.add("a", "last", inOrder)
			if c.inFlight {
				_, err := f.db.Exec(deadOwner)
				require.NoError(t, err)
			}
			cfg := quick()
			cfg.BlockExpired = true
			p := f.projector(cfg)
			require.ErrorIs(t, p.RunOnce(t.Context()), messaging.ErrUnknown)
			require.NoError(t, p.RunOnce(t.Context()))
			require.Equal(t, []string{"placed"}, f.pub.types())
			var head int64
			var state string
			require.NoError(t, f.db.QueryRow("SELECT head_seq, state FROM outbox_block").Scan(&head, &state))
			require.Equal(t, f.sequenceOf("later"), head, "its own block")
			found, err := f.store.State().Disorder(t.Context())
			require.NoError(t, err)
			require.Empty(t, found)
			if state != "dead" {
				return
			}
			letters, err := f.store.Dead().List(t.Context(), operator.DeadFilter{}, nil, 10)
			require.NoError(t, err)
			require.Len(t, letters, 1)
			require.NoError(t, f.store.Dead().Discard(t.Context(), letters[0].ID, operator.By{Actor: "ann", Reason: "too late"}))
			require.NoError(t, p.RunOnce(t.Context()))
			require.Equal(t, []string{"placed", "last"}, f.pub.types())
		})
	}
}

func (f *fixture) sequenceOf(name string) (seq int64) {
	f.t.Helper()
	require.NoError(f.t, f.db.QueryRow("SELECT sequence FROM outbox_messages WHERE event_type = ?", name).Scan(&seq))
	return seq
}

// If two rows of a key both die, the second one is not dead before an operator has decided about the first.
func TestRowsOfOneKeyDieOneAfterTheOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pub.refuse = func(e event.Envelope) error {
		if e.Type == "too large" {
			return messaging.Permanent(errors.New("too large"))
		}
		return nil
	}
	large := f.add("a", "too large")
	quote := f.add("a", "quote", event.WithExpiry(time.Now().Add(-time.Second)))
	f.add("a", "last")
	cfg := quick()
	cfg.BlockExpired = true
	p := f.projector(cfg)
	by := operator.By{Actor: "ann", Reason: "a test"}
	require.NoError(t, p.RunOnce(t.Context()))
	require.Equal(t, map[string]string{"too large": "DEAD", "quote": "NEW", "last": "NEW"}, f.statuses())
	require.NoError(t, f.store.Dead().Discard(t.Context(), large, by))
	require.NoError(t, p.RunOnce(t.Context()))
	require.Equal(t, map[string]string{"quote": "DEAD", "last": "NEW"}, f.statuses())
	require.NoError(t, f.store.Dead().Discard(t.Context(), quote, by))
	require.NoError(t, p.RunOnce(t.Context()))
	require.Equal(t, []string{"last"}, f.pub.types())
}
