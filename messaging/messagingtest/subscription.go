package messagingtest

import (
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/messaging"
)

func testBadSubscription(s *session) {
	t := s.t
	for _, bad := range []messaging.Subscription{{Topic: s.topic}, {Name: "n"}, {Topic: s.topic, Name: "n", Type: 9}, {Topic: "a/b", Name: "n"}} {
		_, err := s.broker.Subscribe(s.ctx, bad)
		require.Error(t, err, "%+v", bad)
	}
}

func testLateSubscription(s *session) {
	t := s.t
	sent := s.series(5, 4)
	s.publish(sent...)
	r := s.subscribe("late", "")
	got := s.receiveDistinct(r, len(sent))
	requireOrder(t, got)
	s.ack(r, got...)
}

func testTwoSubscriptions(s *session) {
	a, b := s.subscribe("a", ""), s.subscribe("b", "")
	sent := s.series(5, 4)
	s.publish(sent...)
	for _, r := range []messaging.Receiver{a, b} {
		got := s.receiveDistinct(r, len(sent))
		s.requireSame(sent, got)
		s.ack(r, got...)
	}
}

// testUnsettled settles one lot of messages and leaves a second one unsettled, closes, and publishes a third lot while
// there is no receiver. The next receiver gets the last two, and nothing of the first.
func testUnsettled(s *session) {
	t := s.t
	const n = 10
	r := s.subscribe("durable", "one")
	settled := s.series(n, 1)
	s.publish(settled...)
	s.ack(r, s.receiveDistinct(r, n)...)

	unsettled := s.series(n, 1)
	s.publish(unsettled...)
	s.receiveDistinct(r, n)
	require.NoError(t, r.Close())

	more := s.message("key-0", 2)
	s.publish(more)
	unsettled = append(unsettled, more)

	r = s.subscribe("durable", "one")
	got := s.receiveDistinct(r, len(unsettled))
	s.requireSame(unsettled, got)
	s.ack(r, got...)
}

// testTakeover has two consumers, one of which goes away with all that it received.
func testTakeover(s *session) {
	t := s.t
	first, second := s.subscribe("shared", "a"), s.subscribe("shared", "b")
	sent := s.series(30, 2)
	s.publish(sent...)

	// The first one settles nothing. How much it gets is up to the broker; with one partition the other one gets nothing
	// until it is gone.
	var some sync.Once
	held, left := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			if _, err := first.Receive(s.ctx); err != nil {
				left <- err
				return
			}
			some.Do(func() { close(held) })
		}
	}()
	select {
	case <-held:
	case <-s.ctx.Done():
		require.NoError(t, s.ctx.Err(), "the first consumer got nothing")
	}
	all := make(chan map[string]bool, 1)
	go func() {
		seen := map[string]bool{}
		for len(seen) < len(sent) {
			m, err := second.Receive(s.ctx)
			if err != nil {
				break
			}
			seen[m.ID] = true
			if second.Ack(s.ctx, m) != nil {
				break
			}
		}
		all <- seen
	}()
	require.NoError(t, first.Close())
	require.ErrorIs(t, <-left, messaging.ErrClosed)
	require.Len(t, <-all, len(sent), "not all messages came again")
}

// testOrderTwoConsumers lets a second consumer join in the middle. Keys may move then, and messages come twice; seen as
// one, the two of them still get each key in order.
func testOrderTwoConsumers(s *session) {
	t := s.t
	sent := s.series(40, 10)
	var (
		mu    sync.Mutex
		seen  = map[string]bool{}
		first []*messaging.Message
		all   = make(chan struct{})
	)
	consume := func(r messaging.Receiver) {
		for {
			m, err := r.Receive(s.ctx)
			if err != nil {
				return
			}
			mu.Lock()
			if !seen[m.ID] {
				seen[m.ID] = true
				if first = append(first, m); len(first) == len(sent) {
					close(all)
				}
			}
			mu.Unlock()
			if r.Ack(s.ctx, m) != nil {
				return
			}
		}
	}
	var consumers sync.WaitGroup
	a := s.subscribe("group", "a")
	consumers.Go(func() { consume(a) })
	s.publish(sent[:len(sent)/2]...)
	b := s.subscribe("group", "b")
	consumers.Go(func() { consume(b) })
	s.publish(sent[len(sent)/2:]...)
	select {
	case <-all:
	case <-s.ctx.Done():
		require.NoError(t, s.ctx.Err(), "not all messages arrived")
	}
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	consumers.Wait()
	requireOrder(t, first)
}
