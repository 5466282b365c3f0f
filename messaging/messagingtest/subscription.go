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
		require.Error(t, err, "a subscription that cannot be is accepted: %+v", bad)
	}
}

func testLateSubscription(s *session) {
	sent := s.series(5, 4)
	s.declareIfForgetful("late")
	s.publish(sent...)
	r := s.subscribe("late", "")
	requireOrder(s.t, s.receiveThese(r, sent, nil))
}

func testTwoSubscriptions(s *session) {
	a, b := s.subscribe("a", ""), s.subscribe("b", "")
	sent := s.series(5, 4)
	s.publish(sent...)
	for _, r := range []messaging.Receiver{a, b} {
		s.receiveThese(r, sent, nil)
	}
}

// testUnsettled settles a first lot of messages, and of a second lot only the later ones of each key. It closes the receiver and publishes a third
// lot. The next receiver gets all messages that were not settled, and none of the first lot.
func testUnsettled(s *session) {
	const n = 10
	r := s.subscribe("durable", "one")
	settled := s.series(n, 1)
	s.publish(settled...)
	s.ack(r, s.receiveDistinct(r, n)...)

	earlier, later := s.series(n, 1), s.series(n, 1)
	s.publish(append(earlier, later...)...)
	second := map[string]bool{}
	for _, m := range later {
		second[m.ID] = true
	}
	for _, m := range s.receiveDistinct(r, 2*n) {
		if second[m.ID] {
			s.ack(r, m)
		}
	}
	s.leave(r)
	more := s.message("key-0", 2)
	s.publish(more)

	// The broker may forget which messages of a batch were settled, so the settled ones of the second lot may come again.
	s.receiveThese(s.subscribe("durable", "one"), append(earlier, more), later)
}

// testTakeover has two consumers, and one of them leaves with all its messages unsettled. The other one gets them.
func testTakeover(s *session) {
	t := s.t
	first, second := s.subscribe("shared", "a"), s.subscribe("shared", "b")
	sent := s.series(30, 2)
	s.publish(sent...)

	// The first consumer settles nothing. How many messages it gets is up to the broker; with a single partition the other consumer gets
	// none before the first has left.
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
	await(s, "the wait of the first consumer", held)
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
	s.leave(first)
	require.ErrorIs(t, await(s, "Receive", left), messaging.ErrClosed)
	require.Len(t, await(s, "Receive", all), len(sent), "not all messages came again")
}

// testOrderTwoConsumers adds a second consumer while messages flow. Keys may move between the two and messages may come twice. Taken together, the
// first copies of each key are in order.
func testOrderTwoConsumers(s *session) {
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
	await(s, "the wait for all messages", all)
	s.leave(a)
	s.leave(b)
	s.awaitAll("Receive", &consumers)
	requireOrder(s.t, first)
}
