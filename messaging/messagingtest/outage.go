package messagingtest

import (
	"context"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// testCrash ends a process that has received all messages and settled some. The next consumer gets the others.
func testCrash(s *session) {
	const keys, perKey = 10, 4
	r := s.join("crashed", "one")
	sent := s.series(keys, perKey)
	s.publish(sent...)
	got := s.receiveDistinct(r, len(sent))
	settled := map[string]bool{}
	for _, m := range got[:len(got)/4] {
		s.ack(r, m)
		settled[m.ID] = true
	}
	if s.h.Crash == nil {
		s.leave(r)
	} else {
		s.broker = s.h.Crash(s.test, s.broker)
	}

	var open, acked []event.Envelope
	for _, m := range sent {
		if settled[m.ID] {
			acked = append(acked, m)
		} else {
			open = append(open, m)
		}
	}
	again := s.receiveThese(s.subscribe("crashed", "one"), open, acked) // an acknowledgement may be lost with the process
	if s.kind != messaging.Shared {
		requireRising(s.t, again)
	}
}

// testLostConnection cuts the connection while a consumer holds messages, and several times more while others are published and received. No message
// is lost, and the first copies are in order, without a restart of anything.
func testLostConnection(s *session) {
	t := s.t
	const keys, perKey, cuts = 10, 30, 3
	r := s.subscribe("cut", "one")
	sent := s.series(keys, perKey)
	held := sent[:len(sent)/cuts]
	s.publish(held...)
	inHand := s.receiveDistinct(r, len(held))
	s.h.Cut(s.test, s.broker)
	if s.h.Keeps {
		for _, m := range inHand {
			require.NoError(t, r.Redeliver(s.ctx, m), "redeliver")
		}
	}

	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	var publisher sync.WaitGroup
	published := make(chan error, 1)
	publisher.Go(func() {
		err := s.insist(sent[len(held):])
		if err != nil {
			stop() // the receiver would wait for messages that will not come
		}
		published <- err
	})
	seen := map[string]bool{}
	var first []*messaging.Message
	var got received
	for len(first) < len(sent) && got.err == nil {
		if got = await(s, "Receive", receiveLater(ctx, r)); got.err != nil {
			continue
		}
		if m := got.msg; !seen[m.ID] {
			seen[m.ID] = true
			first = append(first, m)
			if len(first)%(len(sent)/cuts) == len(sent)/cuts/2 {
				s.h.Cut(s.test, s.broker)
			}
		}
		_ = r.Ack(s.ctx, got.msg) // the acknowledgement may be lost with the connection
	}
	s.awaitAll("Publish over a lost connection", &publisher)
	require.NoError(t, <-published, "publish")
	require.NoError(t, got.err, "receive")
	s.requireSame(sent, first)
	if s.kind != messaging.Shared {
		requireOrder(t, first)
	}
}

// requireRising checks that the sequences of each key rise by one; the first may be any number.
func requireRising(t tester, msgs []*messaging.Message) {
	t.Helper()
	last := map[string]int64{}
	for _, m := range msgs {
		if n, ok := last[m.RoutingKey]; ok {
			require.Equal(t, n+1, m.Sequence, "key %q is out of order", m.RoutingKey)
		}
		last[m.RoutingKey] = m.Sequence
	}
}
