package projector_test

import (
	"testing"
	"time"

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
	// Both times are ages that the process counts, so a note that is written late moves both of them.
	lasted := func(is outboxstate.Projector) time.Duration { return is.FailedAt.Sub(is.FailingSince) }
	f.eventually("it goes on, and began once", func() bool { return lasted(relay()) > lasted(first)+time.Second })
	f.pub.refuseWith(func(event.Envelope) error { return nil })
	f.eventually("it is over", func() bool { is := relay(); return is.FailingSince.IsZero() && is.Error != "" })
}
