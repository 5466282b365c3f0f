package messagingtest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

func testPublishNothing(s *session) {
	t := s.t
	require.NoError(t, s.attempt(s.ctx, nil), "nil")
	require.NoError(t, s.attempt(s.ctx, []event.Envelope{}), "no messages")
}

// testPublishCancelled publishes with a context that is done. No message may be confirmed, and the error must be of a class that costs no attempt.
func testPublishCancelled(s *session) {
	t := s.t
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	err := s.attempt(ctx, []event.Envelope{s.message("a", 1), s.message("b", 1)})
	require.Error(t, err, "nothing can be confirmed any more")
	if partial, ok := errors.AsType[*messaging.PublishError](err); ok {
		require.Len(t, partial.Failed, 2)
	}
	require.False(t, messaging.IsPermanent(err), "a caller that went away is not the message's fault: %v", err)
}

// testOrder publishes many keys in many calls of different sizes, from less than one message per key to many.
func testOrder(s *session) {
	const keys, perKey = 40, 12
	r := s.subscribe("order", "")
	sent := s.series(keys, perKey)
	for i, rest := 0, sent; len(rest) > 0; i++ {
		n := min([]int{1, 7, keys, 3 * keys}[i%4], len(rest))
		s.publish(rest[:n]...)
		rest = rest[n:]
	}
	got := s.receiveDistinct(r, len(sent))
	requireOrder(s.t, got)
	s.requireSame(sent, got)
	s.ack(r, got...)
}

// testThousandKeys uses more keys than a client or broker keeps in its batches and buffers.
func testThousandKeys(s *session) {
	const keys, perKey, perCall = 1000, 4, 1600
	r := s.subscribe("thousand", "")
	sent := s.series(keys, perKey)
	for rest := sent; len(rest) > 0; rest = rest[min(perCall, len(rest)):] {
		s.publish(rest[:min(perCall, len(rest))]...)
	}
	requireOrder(s.t, s.receiveThese(r, sent, nil))
}

// testConcurrentPublish runs several calls of Publish at once, each with keys of its own.
func testConcurrentPublish(s *session) {
	t := s.t
	const callers, calls, perCall = 8, 5, 20
	r := s.subscribe("concurrent", "")
	var (
		sent  []event.Envelope
		group sync.WaitGroup
		errs  = make(chan error, callers*calls)
	)
	for c := range callers {
		var mine []event.Envelope
		for n := range calls * perCall {
			mine = append(mine, s.message(fmt.Sprintf("key-%d-%d", c, n%2), n/2+1))
		}
		sent = append(sent, mine...)
		group.Go(func() {
			for rest := mine; len(rest) > 0; rest = rest[perCall:] {
				errs <- s.broker.Publish(s.ctx, rest[:perCall])
			}
		})
	}
	s.awaitAll("concurrent calls of Publish", &group)
	close(errs)
	for err := range errs {
		require.NoError(t, err, "a call beside others")
	}
	got := s.receiveDistinct(r, len(sent))
	requireOrder(t, got)
	s.requireSame(sent, got)
	s.ack(r, got...)
}

// testRefused publishes a message in the middle of others that the broker can never accept. Later messages of its key must not be stored.
func testRefused(s *session) {
	t := s.t
	r := s.subscribe("refused", "")
	msgs := []event.Envelope{
		s.message("a", 1), s.message("b", 1), s.tooLarge("a", 2), s.message("b", 2), s.message("a", 3), s.message("c", 1), s.message("a", 4),
	}
	failed := requireFailed(t, s.attempt(s.ctx, msgs), 2, 4, 6)
	require.True(t, messaging.IsPermanent(failed[2]), "too large: %v", failed[2])
	for _, i := range []int{4, 6} {
		require.ErrorIs(t, failed[i], messaging.ErrBehind)
		require.False(t, messaging.IsPermanent(failed[i]), "behind: %v", failed[i])
	}
	// One more message of each key shows that none of the refused messages was stored before it.
	last := []event.Envelope{s.message("a", 9), s.message("b", 9), s.message("c", 9)}
	s.publish(last...)
	stored := append([]event.Envelope{msgs[0], msgs[1], msgs[3], msgs[5]}, last...)
	got := s.receiveDistinct(r, len(stored))
	s.requireSame(stored, got)
	s.ack(r, got...)
}

// testRefusedWithoutKey: a message without a key has no order, so a refused one holds nothing back.
func testRefusedWithoutKey(s *session) {
	t := s.t
	r := s.subscribe("refused", "")
	msgs := []event.Envelope{s.message("", 1), s.tooLarge("", 2), s.message("", 3)}
	failed := requireFailed(t, s.attempt(s.ctx, msgs), 1)
	require.True(t, messaging.IsPermanent(failed[1]), "too large: %v", failed[1])
	got := s.receiveDistinct(r, 2)
	s.requireSame([]event.Envelope{msgs[0], msgs[2]}, got)
	s.ack(r, got...)
}

// requireFailed checks that exactly the messages at these indexes have failed, and returns their errors.
func requireFailed(t tester, err error, indexes ...int) map[int]error {
	t.Helper()
	var partial *messaging.PublishError
	require.ErrorAs(t, err, &partial)
	failed := make([]int, 0, len(partial.Failed))
	for i := range partial.Failed {
		failed = append(failed, i)
	}
	require.ElementsMatch(t, indexes, failed, "%v", err)
	return partial.Failed
}
