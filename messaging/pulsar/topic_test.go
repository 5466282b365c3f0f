package pulsar

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// closable reports that it was closed.
type closable struct {
	fakeProducer

	closed atomic.Bool
}

func (c *closable) Close() { c.closed.Store(true) }

func TestIdleProducersAreRetired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Broker{cfg: (&Config{Producers: 2}).WithDefaults()}
		top := newTopic(b, "order")
		first, second := &closable{}, &closable{}
		top.room <- struct{}{}
		top.room <- struct{}{}
		top.giveBack(&producer{Producer: first, batched: true})
		time.Sleep(40 * time.Second)
		top.giveBack(&producer{Producer: second, batched: true})
		time.Sleep(59 * time.Second)
		require.False(t, first.closed.Load() || second.closed.Load(), "the topic is in use")
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, first.closed.Load() && second.closed.Load())
		require.Empty(t, top.room, "there is room for new ones")
	})
}

func TestIdleProducersAreKeptOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		top := newTopic(&Broker{cfg: (&Config{ProducerIdle: -1}).WithDefaults()}, "order")
		p := &closable{}
		top.room <- struct{}{}
		top.giveBack(&producer{Producer: p, batched: true})
		time.Sleep(time.Hour)
		synctest.Wait()
		require.False(t, p.closed.Load())
	})
}
