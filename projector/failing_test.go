package projector_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

// Operators read since when the broker takes nothing from a relay, and that it takes events again.
func TestFailureIsStoredWithItsBeginningAndItsEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pub.refuseWith(func(event.Envelope) error { return messaging.ErrBrokerDown })
	f.add("a", "first")
	f.run(f.projector(quick()))
	relay := func() (is outboxstate.Projector) {
		list, err := f.store.State().Projectors(t.Context())
		require.NoError(t, err)
		if len(list) == 1 {
			is = list[0]
		}
		return is
	}
	f.eventually("the failure is stored", func() bool { return !relay().FailingSince.IsZero() })
	first := relay()
	require.Contains(t, first.Error, messaging.ErrBrokerDown.Error())
	f.eventually("it fails again", func() bool { return relay().FailedAt.After(first.FailedAt) })
	again := relay()
	require.Less(t, again.FailingSince.Sub(first.FailingSince).Abs(), again.FailedAt.Sub(first.FailedAt), "it began once")
	f.pub.refuseWith(func(event.Envelope) error { return nil })
	f.eventually("it is over", func() bool { is := relay(); return is.FailingSince.IsZero() && is.Error != "" })
}
