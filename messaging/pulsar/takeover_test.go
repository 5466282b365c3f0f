package pulsar

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
)

// publishOn publishes the messages of each key from one number up to another, one round after the other, while something
// happens to the consumers.
func (e *effects) publishOn(keys, from, to int) (published <-chan error) {
	done := make(chan error, 1)
	go func() {
		for round := from; round < to; round++ {
			if err := e.broker.Publish(e.t.Context(), series("order", keys, round+1)[keys*round:]); err != nil {
				done <- err
				return
			}
			<-time.After(10 * time.Millisecond) // or all is out before anything happens to the consumers
		}
		done <- nil
	}()
	return done
}

// Consumers of a Failover subscription join and are killed, again and again. A killed consumer does not know it: its handlers
// go on beside those of its successor, with the same messages: each has some in hand when it is killed.
func TestConsumersAreAddedAndKilled(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	e := newEffects(t, declared(n, "order", "s"), n)
	const keys, half, kills = 20, 15, 3
	const perKey = 2 * half * kills
	handle := e.handler
	var ends []func()
	join := func(i int) *mortal {
		m := &mortal{proxy: newProxy(t, n.URL)}
		e.handler = messaging.HandlerFunc(func(ctx context.Context, msg *messaging.Message) error {
			m.waiting.Add(1)
			m.held.RLock()
			m.held.RUnlock() //nolint:staticcheck // a door
			m.waiting.Add(-1)
			return handle.Handle(ctx, msg)
		})
		cfg := config(n)
		cfg.URL, cfg.CloseTimeout = m.proxy.url(), time.Second
		b, err := Connect(t.Context(), cfg)
		require.NoError(t, err)
		_, stop := e.consume(b, messaging.Subscription{Topic: "order", Name: "s", Consumer: fmt.Sprintf("c%d", i%3)})
		ends = append(ends, func() {
			stop()
			_ = b.Close() // a killed one has no connection to close
		})
		return m
	}
	alive := []*mortal{join(0)}
	for i := range kills {
		published := e.publishOn(keys, 2*i*half, (2*i+1)*half)
		alive = append(alive, join(i+1))
		require.NoError(t, <-published)
		e.eventually("it goes on", func() bool { return e.count() >= keys*(2*i+1)*half })
		dying := alive[0]
		alive = alive[1:]
		dying.held.Lock()
		release := sync.OnceFunc(dying.held.Unlock)
		t.Cleanup(release)
		published = e.publishOn(keys, (2*i+1)*half, (2*i+2)*half)
		await.True(t, func() bool { return dying.waiting.Load() > 0 }, "the consumer that will die has messages in hand")
		dying.proxy.kill()
		release()
		require.NoError(t, <-published)
	}
	// All at once: the client of a consumer that was killed needs seconds to give up.
	t.Cleanup(func() {
		var ending sync.WaitGroup
		for _, end := range ends {
			ending.Go(end)
		}
		ending.Wait()
	})
	e.eventually("all have their effect", func() bool { return e.count() >= keys*perKey })
	e.settled("order", "s")
	e.requireOnceInOrder(keys, perKey)
	require.Greater(t, e.deliveries.Load(), int64(keys*perKey), "some came again")
}

// mortal is a consumer that can be killed with messages in hand.
type mortal struct {
	proxy   *proxy
	held    sync.RWMutex // held while its handlers wait
	waiting atomic.Int64
}

// The three consumers of a Key_Shared subscription are restarted one after the other, twice. No message is received for the
// first time before an earlier one of its key was, whichever consumer receives it.
func TestRollingRestartOfKeyShared(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	s := messaging.Subscription{Topic: "order", Name: "s", Type: messaging.KeyShared}
	cfg := config(n)
	cfg.Subscriptions = []messaging.Subscription{s}
	e := newEffects(t, cfg, n)
	const keys, perKey = 30, 150
	var mu sync.Mutex
	next, early, tries := map[string]int64{}, []string{}, map[string][]string{}
	handle := e.handler
	e.handler = messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		mu.Lock()
		if m.Sequence > next[m.RoutingKey]+1 {
			early = append(early, fmt.Sprintf("%s #%d after #%d", m.RoutingKey, m.Sequence, next[m.RoutingKey]))
		}
		next[m.RoutingKey] = max(next[m.RoutingKey], m.Sequence)
		mu.Unlock()
		err := handle.Handle(ctx, m)
		mu.Lock()
		defer mu.Unlock()
		tries[m.RoutingKey] = append(tries[m.RoutingKey], fmt.Sprintf("%d %v", m.Sequence, err))
		return err
	})
	t.Cleanup(func() {
		for _, key := range slices.Sorted(maps.Keys(tries)) {
			if t.Failed() {
				t.Log(key, tries[key])
			}
		}
		if t.Failed() {
			t.Log(early)
		}
	})
	start := func(i int) (stop func()) {
		b, err := Connect(t.Context(), config(n))
		require.NoError(t, err)
		own := s
		own.Consumer = fmt.Sprintf("c%d", i)
		_, end := e.consume(b, own)
		stop = sync.OnceFunc(func() {
			end()
			require.NoError(t, b.Close())
		})
		t.Cleanup(stop)
		return stop
	}
	var stops []func()
	for i := range 3 {
		stops = append(stops, start(i))
	}
	published := e.publishOn(keys, 0, perKey)
	for range 2 {
		for i := range stops {
			before := e.count()
			e.eventually("it goes on", func() bool { return e.count() >= min(before+keys*perKey/12, keys*perKey) })
			stops[i]()
			stops[i] = start(i)
		}
	}
	require.NoError(t, <-published)
	e.eventually("all have their effect", func() bool { return e.count() >= keys*perKey })
	e.settled("order", "s")
	e.requireOnceInOrder(keys, perKey)
	require.Empty(t, early)
}
