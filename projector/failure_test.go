package projector_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// Who asks why events do not leave finds what the broker, or a topic, said to the relay. What is wrong with a single event is found with the event.
func TestRelayWritesDownWhyNothingLeaves(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fails error
		says  string
	}{
		"broker":  {errors.Join(messaging.ErrBrokerDown, errors.New("connection refused")), "connection refused"},
		"unknown": {messaging.ErrUnknown, messaging.ErrUnknown.Error()},
		"topic":   {&messaging.TopicError{Topic: "order", Err: errors.New("terminated")}, "terminated"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.pub.refuseWith(func(event.Envelope) error { return test.fails })
			f.add("a", "a1")
			f.run(f.projector(quick()))
			f.eventually("the reason is written down", func() bool {
				list, err := f.store.State().Projectors(t.Context())
				require.NoError(t, err)
				if len(list) == 0 || list[0].Error == "" {
					return false
				}
				require.Contains(t, list[0].Error, test.says)
				require.False(t, list[0].FailedAt.IsZero())
				return true
			})
		})
	}
	t.Run("a single event", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.pub.refuseWith(func(e event.Envelope) error {
			if e.Type == "a1" {
				return errors.New("too large")
			}
			return nil
		})
		f.add("a", "a1")
		cfg := quick()
		cfg.MaxRetryAttempts = -1 // else it may be dead before anybody looks
		f.run(f.projector(cfg))
		f.eventually("it is refused", func() bool { return f.statuses()["a1"] == "FAILED" })
		f.add("b", "b1")
		f.eventually("others leave", func() bool { return f.statuses()["b1"] == "SENT" })
		list, err := f.store.State().Projectors(t.Context())
		require.NoError(t, err)
		require.Empty(t, list[0].Error)
	})
}
