package messagingtest

import (
	"context"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

func testReceiveContext(s *session) {
	t := s.t
	r := s.subscribe("idle", "")
	ctx, cancel := context.WithCancel(s.ctx)
	got := receiveLater(ctx, r)
	cancel()
	require.ErrorIs(t, (<-got).err, context.Canceled)

	// The receiver is as good as before.
	s.publish(s.message("key", 1))
	s.ack(r, s.receive(r))
}

func testReceiveClose(s *session) {
	t := s.t
	r := s.subscribe("idle", "")
	got := receiveLater(s.ctx, r)
	require.NoError(t, r.Close())
	require.ErrorIs(t, (<-got).err, messaging.ErrClosed)
	_, err := r.Receive(s.ctx)
	require.ErrorIs(t, err, messaging.ErrClosed)
	require.NoError(t, r.Close(), "a second time")

	r = s.subscribe("held", "")
	s.publish(s.message("key", 1))
	m := s.receive(r)
	require.NoError(t, r.Close())
	require.ErrorIs(t, r.Ack(s.ctx, m), messaging.ErrClosed)
	require.ErrorIs(t, r.Redeliver(s.ctx, m), messaging.ErrClosed)
}

func testBrokerClose(s *session) {
	t := s.t
	r := s.subscribe("idle", "")
	got := receiveLater(s.ctx, r)
	s.publish(s.message("other", 1))
	<-got
	got = receiveLater(s.ctx, r)
	require.NoError(t, s.broker.Close())
	require.ErrorIs(t, (<-got).err, messaging.ErrClosed)

	err := s.broker.Publish(s.ctx, []event.Envelope{s.message("key", 1)})
	require.ErrorIs(t, err, messaging.ErrBrokerDown, "a broker that was closed costs no message an attempt")
	_, err = s.broker.Subscribe(s.ctx, messaging.Subscription{Topic: s.topic, Name: "n"})
	require.Error(t, err)
	require.NoError(t, s.broker.Close(), "a second time")
}

// testBrokerCloseWhileUsed wants everybody to get an answer, and nobody to panic.
func testBrokerCloseWhileUsed(s *session) {
	t := s.t
	var users sync.WaitGroup
	busy := make(chan struct{}, 8)
	for _, key := range []string{"a", "b", "c", "d"} {
		msgs := []event.Envelope{s.message(key, 1), s.message(key, 2), s.message(key, 3)}
		users.Go(func() {
			for s.broker.Publish(s.ctx, msgs) == nil {
				busy <- struct{}{}
			}
		})
	}
	for _, name := range []string{"a", "b"} {
		r := s.subscribe(name, "")
		users.Go(func() {
			for {
				m, err := r.Receive(s.ctx)
				if err != nil || r.Ack(s.ctx, m) != nil {
					return
				}
			}
		})
	}
	for range 20 {
		<-busy
	}
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-busy:
			case <-stop:
				return
			}
		}
	}()
	require.NoError(t, s.broker.Close())
	users.Wait()
	close(stop)
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
	s.ack(r, s.receive(r))

	// Settled: the next one is another one.
	next := s.message("key", 2)
	s.publish(next)
	m = s.receive(r)
	require.Equal(t, next.ID, m.ID)
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
		require.Equal(t, n+1, m.Sequence)
		s.ack(r, m)
	}
}

func testPause(s *session) {
	t := s.t
	r := s.subscribe("paused", "")
	s.publish(s.message("key", 1))
	s.ack(r, s.receive(r))
	r.Pause()
	got := receiveLater(s.ctx, r)
	s.publish(s.message("key", 2))
	// Another subscription has it, so it is on its way; that the paused one does not let it through may be seen now, or not.
	other := s.subscribe("other", "")
	s.ack(other, s.receiveDistinct(other, 2)...)
	select {
	case g := <-got:
		require.Fail(t, "a paused receiver received", "%+v", g)
	default:
	}
	r.Resume()
	g := <-got
	require.NoError(t, g.err)
	require.EqualValues(t, 2, g.msg.Sequence)
	s.ack(r, g.msg)
}

type received struct {
	msg *messaging.Message
	err error
}

// receiveLater receives in a goroutine.
func receiveLater(ctx context.Context, r messaging.Receiver) <-chan received {
	got := make(chan received, 1)
	go func() {
		m, err := r.Receive(ctx)
		got <- received{m, err}
	}()
	return got
}
