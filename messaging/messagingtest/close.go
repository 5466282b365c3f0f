package messagingtest

import (
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

func testBrokerClose(s *session) {
	t := s.t
	r := s.subscribe("idle", "")
	got := receiveLater(s.ctx, r)
	s.publish(s.message("other", 1))
	require.NoError(t, await(s, "Receive", got).err)
	got = receiveLater(s.ctx, r)
	s.close()
	require.ErrorIs(t, await(s, "Receive", got).err, messaging.ErrClosed)

	err := s.attempt(s.ctx, []event.Envelope{s.message("key", 1)})
	require.ErrorIs(t, err, messaging.ErrBrokerDown, "a broker that was closed costs no message an attempt")
	_, err = s.broker.Subscribe(s.ctx, messaging.Subscription{Topic: s.topic, Name: "n"})
	require.Error(t, err, "subscribe after the broker's end")
	s.close() // closing again succeeds
}

// testBrokerCloseWhileUsed closes the broker while it publishes and delivers: every call returns, and none panics.
func testBrokerCloseWhileUsed(s *session) {
	s.declareIfForgetful("a", "b")
	var users sync.WaitGroup
	busy := make(chan struct{}, 1)
	for _, key := range []string{"a", "b", "c", "d"} {
		msgs := []event.Envelope{s.message(key, 1), s.message(key, 2), s.message(key, 3)}
		users.Go(func() {
			for s.broker.Publish(s.ctx, msgs) == nil {
				select {
				case busy <- struct{}{}:
				default: // the channel is full: enough for the receivers that wait on it
				}
			}
		})
	}
	for _, name := range []string{"a", "b"} {
		r := s.subscribe(name, "")
		users.Go(func() {
			for {
				m, err := r.Receive(s.ctx)
				if err != nil {
					return
				}
				_ = r.Ack(s.ctx, m) // an error is right if the receiver is closed by now
			}
		})
	}
	for range 5 {
		await(s, "Publish", busy)
	}
	s.close()
	s.awaitAll("what was under way when the broker was closed", &users)
}

// testConcurrentClose closes each receiver, and then the broker, from several goroutines at once while they are in use.
func testConcurrentClose(s *session) {
	t := s.t
	const receivers, closers = 3, 4
	names := []string{"a", "b", "c"}[:receivers]
	s.declareIfForgetful(names...)
	s.publish(s.series(5, 4)...)
	var users, closing sync.WaitGroup
	ends := make(chan error, receivers)
	closed := make(chan error, (receivers+1)*closers)
	begin, used := make(chan struct{}), make(chan struct{}, receivers)
	for _, name := range names {
		r := s.join(name, "")
		users.Go(func() { ends <- useUntilTheEnd(s, r, used) })
		for range closers {
			closing.Go(func() {
				<-begin
				closed <- r.Close()
			})
		}
	}
	for range receivers {
		await(s, "Receive", used)
	}
	close(begin)
	s.awaitAll("Close of a receiver by several at once", &closing)
	s.awaitAll("Receive of a receiver that was closed", &users)
	for range receivers {
		require.ErrorIs(t, <-ends, messaging.ErrClosed)
	}
	for range closers {
		closing.Go(func() { closed <- s.broker.Close() })
	}
	s.awaitAll("Close of the broker by several at once", &closing)
	close(closed)
	for err := range closed {
		require.NoError(t, err, "close")
	}
}

// useUntilTheEnd receives messages and gives them back until Receive fails, and returns that error. It sends to used after its first message.
func useUntilTheEnd(s *session, r messaging.Receiver, used chan<- struct{}) error {
	for n := 0; ; n++ {
		m, err := r.Receive(s.ctx)
		if err != nil {
			return err
		}
		if n == 0 {
			used <- struct{}{}
		}
		r.Pause()
		_ = r.Redeliver(s.ctx, m) // an error is right if the receiver is closed by now
		r.Resume()
	}
}

func (s *session) close() {
	s.t.Helper()
	require.NoError(s.t, within(s, "Close of the broker", s.broker.Close), "close the broker")
}
