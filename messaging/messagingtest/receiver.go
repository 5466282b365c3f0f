package messagingtest

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/messaging"
)

func testReceiveContext(s *session) {
	t := s.t
	r := s.subscribe("idle", "")
	ctx, cancel := context.WithCancel(s.ctx)
	got := receiveLater(ctx, r)
	cancel()
	require.ErrorIs(t, await(s, "Receive", got).err, context.Canceled)

	// The receiver still works after a Receive that ended with its context.
	s.publish(s.message("key", 1))
	s.ack(r, s.receive(r))
}

func testReceiveClose(s *session) {
	t := s.t
	r := s.subscribe("idle", "")
	got := receiveLater(s.ctx, r)
	s.leave(r)
	require.ErrorIs(t, await(s, "Receive", got).err, messaging.ErrClosed)
	require.ErrorIs(t, await(s, "Receive", receiveLater(s.ctx, r)).err, messaging.ErrClosed)
	s.leave(r) // leaving again succeeds

	r = s.subscribe("held", "")
	s.publish(s.message("key", 1))
	m := s.receive(r)
	s.leave(r)
	require.ErrorIs(t, r.Ack(s.ctx, m), messaging.ErrClosed, "ack")
	require.ErrorIs(t, r.Redeliver(s.ctx, m), messaging.ErrClosed, "redeliver")
}

// testForeignMessage settles a message with the receiver of another subscription, where it would settle something else.
func testForeignMessage(s *session) {
	t := s.t
	a, b := s.subscribe("a", ""), s.subscribe("b", "")
	s.publish(s.message("key", 1))
	m, other := s.receive(a), s.receive(b)
	require.Error(t, b.Ack(s.ctx, m), "ack takes a message of another receiver")
	require.Error(t, b.Redeliver(s.ctx, m), "redeliver takes a message of another receiver")
	s.ack(a, m)
	s.ack(b, other)
}

func testRedeliver(s *session) {
	t := s.t
	r := s.subscribe("again", "")
	sent := s.message("key", 1)
	s.publish(sent)
	m := s.receive(r)
	require.NoError(t, r.Redeliver(s.ctx, m))
	again := s.receive(r)
	require.Equal(t, sent.ID, again.ID)
	require.NoError(t, r.Redeliver(s.ctx, again))
	require.NoError(t, r.Redeliver(s.ctx, again), "a message that was given back already")
	again = s.receive(r)
	require.Equal(t, sent.ID, again.ID)
	s.ack(r, again)
	require.NoError(t, r.Redeliver(s.ctx, again), "a message that was settled meanwhile")

	// The acknowledged message does not come again: the next delivery is the next message.
	next := s.message("key", 2)
	s.publish(next)
	m = s.receive(r)
	require.Equal(t, next.ID, m.ID, "a settled message came again, or a message that was given back twice")
	s.ack(r, m)
}

func testRedeliverOrder(s *session) {
	t := s.t
	r := s.subscribe("again", "")
	s.publish(s.message("key", 1), s.message("key", 2), s.message("key", 3))
	m := s.receive(r)
	require.NoError(t, r.Redeliver(s.ctx, m))
	for n := range int64(3) {
		m := s.receive(r)
		require.Equal(t, n+1, m.Sequence, "a later message overtook the message that was given back")
		s.ack(r, m)
	}
}

func testPause(s *session) {
	t := s.t
	s.declareIfForgetful("other")
	r := s.subscribe("paused", "")
	s.publish(s.message("key", 1))
	s.ack(r, s.receive(r))
	r.Pause()
	s.publish(s.message("key", 2))
	// Another subscription has the message, so the paused receiver could have it too, now or in a moment.
	other := s.subscribe("other", "")
	s.ack(other, s.receiveDistinct(other, 2)...)
	moment, cancel := context.WithTimeout(s.ctx, 100*time.Millisecond)
	defer cancel()
	got := await(s, "Receive", receiveLater(moment, r))
	require.Nil(t, got.msg, "a paused receiver received")
	require.ErrorIs(t, got.err, context.DeadlineExceeded)

	later := receiveLater(s.ctx, r)
	r.Resume()
	got = await(s, "Receive", later)
	require.NoError(t, got.err, "receive after a pause")
	require.EqualValues(t, 2, got.msg.Sequence)
	s.ack(r, got.msg)
}
