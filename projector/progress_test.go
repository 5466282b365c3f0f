package projector_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

func TestProgressTellsWhetherTheRelayGetsOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cfg := quick()
	cfg.Renew = 10 * time.Millisecond // it comes round all the time
	p := f.projector(cfg)
	require.True(t, p.Progress().Stalled(time.Hour), "it does not run")
	stop := f.run(p)
	f.eventually("all loops came round", func() bool { return !p.Progress().Stalled(time.Minute) })

	// With the broker away the loop that has the row does not come round; the others must not hide that.
	refused := make(chan struct{})
	f.pub.refuseWith(func(event.Envelope) error {
		refused <- struct{}{}
		return messaging.ErrBrokerDown
	})
	f.add("a", "a1")
	f.store.Wake()
	<-refused
	outage := time.Now()
	<-refused
	<-refused
	require.Less(t, p.Progress().Last, outage)
	require.True(t, p.Progress().Running)

	go func() {
		for range refused { // whatever is refused before it heals
		}
	}()
	f.pub.refuseWith(nil)
	close(refused)
	f.eventually("it gets on again", func() bool { return p.Progress().Last.After(outage) })

	stop()
	require.False(t, p.Progress().Running)
}
