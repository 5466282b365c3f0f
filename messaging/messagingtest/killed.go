package messagingtest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// RunKilled kills the server of an adapter and starts it again, as often as kills says, while messages are published and received. It needs
// [Harness.Kill], and a server that nobody else uses. Patience is the time for all of it.
//
// Nothing that was confirmed is lost, the first copies of each key are in order, an outage is no message's fault, and no receiver has to be made again.
func RunKilled(t *testing.T, h Harness, kills int) {
	t.Helper()
	h = h.withDefaults()
	t.Run("server is killed", func(t *testing.T) { testKilled(kills)(h.open(t, t, h.Types[0])) })
}

// awayCall is the limit of a call while the server is away, much less than the outage.
const awayCall = 2 * time.Second

func testKilled(kills int) func(*session) {
	return func(s *session) { s.publishOverKills(kills) }
}

func (s *session) publishOverKills(kills int) {
	const keys, perKey = 10, 60
	r := s.subscribe("killed", "one")
	sent := s.series(keys, perKey)
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	var consumer sync.WaitGroup
	var first []*messaging.Message
	var failed error
	consumer.Go(func() { first, failed = firstCopies(ctx, r, len(sent)) })

	rest := sent
	for range kills {
		n := len(sent) / (kills + 1)
		require.NoError(s.t, within(s, "Publish", func() error { return s.insist(rest[:n]) }), "publish")
		restart := s.h.Kill(s.test, s.broker)
		rest = s.publishToNobody(rest[n:])
		restart()
	}
	require.NoError(s.t, within(s, "Publish", func() error { return s.insist(rest) }), "publish")
	s.awaitAll("Receive after the server was killed", &consumer)
	require.NoError(s.t, failed, "receive")
	s.requireSame(sent, first)
	if s.kind != messaging.Shared {
		requireOrder(s.t, first)
	}
}

// publishToNobody publishes while the server is away, until a call says that the broker is down, or is confirmed by the other servers of a cluster. It
// returns what is not confirmed.
func (s *session) publishToNobody(msgs []event.Envelope) []event.Envelope {
	s.t.Helper()
	const perCall = 20
	for {
		n := min(perCall, len(msgs))
		ctx, cancel := context.WithTimeout(s.ctx, awayCall)
		err := s.attempt(ctx, msgs[:n])
		cancel()
		require.NoError(s.t, s.ctx.Err(), "no call says that the broker is down; the last one said: %v", err)
		again, broken := unconfirmed(msgs[:n], err)
		require.NoError(s.t, broken)
		if len(again) > 0 {
			require.True(s.t, isOutage(err), "an outage counts as the message's fault: %v", err)
		}
		msgs = append(again, msgs[n:]...)
		if len(again) == 0 || saysDown(err) {
			return msgs
		}
		<-time.After(10 * pause)
	}
}

func saysDown(err error) bool {
	partial, ok := errors.AsType[*messaging.PublishError](err)
	if !ok {
		return errors.Is(err, messaging.ErrBrokerDown)
	}
	for _, e := range partial.Failed {
		if errors.Is(e, messaging.ErrBrokerDown) {
			return true
		}
	}
	return false
}

// firstCopies receives and acknowledges until n different messages have come, and returns the first copy of each.
func firstCopies(ctx context.Context, r messaging.Receiver, n int) (first []*messaging.Message, err error) {
	seen := map[string]bool{}
	for len(first) < n {
		m, err := r.Receive(ctx)
		if err != nil {
			return first, err
		}
		if !seen[m.ID] {
			seen[m.ID] = true
			first = append(first, m)
		}
		_ = r.Ack(ctx, m) // the acknowledgement may be lost with the server
	}
	return first, nil
}
