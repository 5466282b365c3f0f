package messaging_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
)

var order = messaging.Subscription{Topic: "thing", Name: "billing"}

// shop is a broker whose receivers are made beforehand; nil is a failure.
type shop struct {
	mu        sync.Mutex
	receivers []*pausable
	asked     []time.Time
}

func (s *shop) Subscribe(ctx context.Context, _ messaging.Subscription) (messaging.Receiver, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, time.Now())
	if len(s.receivers) == 0 {
		return nil, errors.New("no receiver today")
	}
	next := s.receivers[0]
	s.receivers = s.receivers[1:]
	if next == nil {
		return nil, errors.Join(messaging.ErrBrokerDown, ctx.Err())
	}
	return next, nil
}

// pausable counts.
type pausable struct {
	*fakeReceiver
	paused, resumed atomic.Int32
}

func (r *pausable) Pause()  { r.paused.Add(1) }
func (r *pausable) Resume() { r.resumed.Add(1) }

func receiverOf(msgs ...*messaging.Message) *pausable {
	return &pausable{fakeReceiver: newFakeReceiver(msgs...)}
}

func loop(t *testing.T, s *shop, h messaging.Handler, cfg *messaging.ConsumerConfig) (l *messaging.Loop, stop func()) {
	t.Helper()
	if cfg == nil {
		cfg = &messaging.ConsumerConfig{Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)}}
	}
	l, err := messaging.NewLoop(s, order, h, cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	synctest.Wait()
	return l, func() {
		cancel()
		<-done
	}
}

func TestLoopSubscribesUntilItIsLetIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := receiverOf(msg("a", 1))
		s := &shop{receivers: []*pausable{nil, nil, nil, r}}
		l, stop := loop(t, s, newScript(fine), nil)
		require.EqualError(t, l.Health(time.Minute), "messaging: consumer billing is not subscribed to topic thing")
		time.Sleep(2 * time.Second)
		require.NoError(t, l.Health(time.Minute))
		require.Equal(t, []string{"a1"}, r.ackedIDs())
		for i := range 3 {
			require.LessOrEqual(t, s.asked[i+1].Sub(s.asked[i]), 200*time.Millisecond<<i)
			require.GreaterOrEqual(t, s.asked[i+1].Sub(s.asked[i]), 100*time.Millisecond<<i)
		}
		stop()
		require.True(t, r.isClosed())
		require.ErrorContains(t, l.Health(time.Minute), "not subscribed")
	})
}

func TestLoopReplacesAReceiverThatDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := receiverOf(msg("a", 1)), receiverOf(msg("a", 2))
		s := &shop{receivers: []*pausable{nil, nil, nil, nil, nil, first, second}}
		var log logbook.Book
		l, stop := loop(t, s, newScript(fine), &messaging.ConsumerConfig{Telemetry: telemetry.Config{Logger: log.Logger()}})
		time.Sleep(time.Hour)
		died := time.Now()
		first.dies <- errors.New("topic terminated")
		synctest.Wait()
		require.True(t, first.isClosed())
		require.Error(t, l.Health(time.Minute))
		time.Sleep(time.Second)
		require.NoError(t, l.Health(time.Minute))
		require.Equal(t, []string{"a2"}, second.ackedIDs())
		require.LessOrEqual(t, s.asked[6].Sub(died), 200*time.Millisecond, "the first failure after an hour")
		stop()
		require.Contains(t, log.String(), "topic terminated")
		require.Contains(t, log.String(), "consumer=billing")
	})
}

func TestLoopPausesLongerAndLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{}
		_, stop := loop(t, s, newScript(fine), nil)
		time.Sleep(time.Hour)
		stop()
		require.InDelta(t, 3600/22.5, len(s.asked), 40, "about one in half a minute")
	})
}

func TestLoopStaysPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := receiverOf(), receiverOf()
		l, stop := loop(t, &shop{receivers: []*pausable{first, second}}, newScript(fine), nil)
		l.Pause()
		require.Equal(t, int32(1), first.paused.Load())
		first.dies <- errors.New("gone")
		time.Sleep(time.Second)
		require.Equal(t, int32(1), second.paused.Load(), "the next one begins with a pause")
		l.Resume()
		require.Equal(t, int32(1), second.resumed.Load())
		stop()
		l.Pause()
	})
}

// A pause is on purpose, so a paused loop is healthy although messages wait in it.
func TestPausedLoopIsHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := loop(t, &shop{receivers: []*pausable{receiverOf()}}, newScript(fine), nil)
		l.Pause()
		require.NoError(t, l.Health(time.Minute))
		stop()
		l, stop = loop(t, &shop{receivers: []*pausable{receiverOf(msg("a", 1))}}, newScript(never), nil)
		synctest.Wait()
		l.Pause()
		time.Sleep(time.Hour)
		require.NoError(t, l.Health(time.Minute))
		l.Resume()
		time.Sleep(2 * time.Minute)
		require.Error(t, l.Health(time.Minute))
		stop()
	})
}

func TestLoopHealthNamesWhatStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := loop(t, &shop{receivers: []*pausable{receiverOf(msg("a", 1), msg("a", 2))}}, newScript(never), nil)
		time.Sleep(2 * time.Minute)
		require.EqualError(t, l.Health(time.Minute),
			"messaging: consumer billing of topic thing makes no progress: 2 messages in this process and 0 at the broker are not settled, "+
				"last progress 2m0s ago")
		stop()
	})
}

// The broker's answer is that to its last question. A consumer that has begun to make progress since then
// is not reported as standing.
func TestLoopHealthSaysWhenTheBrokerWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &informed{fakeReceiver: newFakeReceiver()}
		r.messages.Store(3)
		quiet := telemetry.Config{Logger: slog.New(slog.DiscardHandler)}
		l, err := messaging.NewLoop(one{r}, order, newScript(fine), &messaging.ConsumerConfig{Telemetry: quiet})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		time.Sleep(101 * time.Second) // looks every 20 s
		require.ErrorContains(t, l.Health(time.Minute), "0 messages in this process and 3 at the broker are not settled, last progress")
		r.incoming <- msg("a", 1)
		synctest.Wait()
		require.EqualError(t, l.Health(time.Minute),
			"messaging: consumer billing of topic thing makes no progress: of 3 messages at the broker, none was settled in the 1m40s before "+
				"the broker was last asked")
		r.settled.Add(1)
		time.Sleep(20 * time.Second)
		require.NoError(t, l.Health(time.Minute))
		cancel()
		require.NoError(t, <-done)
	})
}

func TestConsume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := receiverOf(msg("a", 1))
		ctx, cancel := context.WithCancel(t.Context())
		h := newScript(func(context.Context, *messaging.Message) error {
			cancel()
			time.Sleep(time.Second)
			return nil
		})
		require.NoError(t, messaging.Consume(ctx, &shop{receivers: []*pausable{r}}, order, h, nil))
		require.Equal(t, []string{"a1"}, r.ackedIDs(), "it drains")
		require.True(t, r.isClosed())
	})
}

func TestConsumeRefusesWhatCannotWork(t *testing.T) {
	require.ErrorContains(t, messaging.Consume(t.Context(), &shop{}, messaging.Subscription{}, nil, nil), "Subscription.Topic")
	require.ErrorContains(t, messaging.Consume(t.Context(), &shop{}, order, nil, &messaging.ConsumerConfig{Queue: -1}), "ConsumerConfig.Queue")
}

// Two handlers that cannot be ended are the program's affair, but the log has to report them.
func TestLoopTellsOfADrainThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		h := newScript(func(context.Context, *messaging.Message) error {
			<-release
			return nil
		})
		var log logbook.Book
		cfg := &messaging.ConsumerConfig{Telemetry: telemetry.Config{Logger: log.Logger()}}
		_, stop := loop(t, &shop{receivers: []*pausable{receiverOf(msg("a", 1))}}, h, cfg)
		stop()
		close(release)
		synctest.Wait()
		require.Contains(t, log.String(), "handlers still run")
	})
}

func TestLoopKeepsNoOrderWhereThereIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		h := newScript(func(context.Context, *messaging.Message) error {
			<-release
			return nil
		})
		shared := order
		shared.Type = messaging.Shared
		done := make(chan error)
		go func() {
			done <- messaging.Consume(ctx, &shop{receivers: []*pausable{receiverOf(msg("a", 1), msg("a", 2))}}, shared, h, nil)
		}()
		synctest.Wait()
		require.Len(t, h.seen(), 2, "side by side")
		cancel()
		close(release)
		require.NoError(t, <-done)
	})
}

// refusing is a broker that refuses a subscription for good.
type refusing struct{}

func (refusing) Subscribe(context.Context, messaging.Subscription) (messaging.Receiver, error) {
	return nil, messaging.Permanent(&messaging.SourceError{Topic: "thing", Subscription: "billing", Owner: "shop", Source: "bank"})
}

func TestConsumeEndsIfTheSubscriptionIsRefused(t *testing.T) {
	err := messaging.Consume(t.Context(), refusing{}, order, newScript(fine), nil)
	require.ErrorContains(t, err, `belongs to the service "shop"`)
}

// connected is a receiver that says how it is connected.
type connected struct {
	*pausable

	mu sync.Mutex
	is messaging.Connection
}

func (r *connected) Connection() messaging.Connection {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.is
}

func (r *connected) become(is messaging.Connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.is = is
}

// one is a broker with one receiver.
type one struct{ messaging.Receiver }

func (o one) Subscribe(context.Context, messaging.Subscription) (messaging.Receiver, error) {
	return o.Receiver, nil
}

// A consumer that is cut off looks idle, and more so where the producers are cut off as well: nothing waits at the broker then. The log says
// that it has no connection, once a minute, and once that it is back; the loop is not healthy meanwhile. A connection that is lost for a moment is no news.
func TestLoopSaysThatItIsCutOff(t *testing.T) {
	const gone, partly, back = "has no connection to the broker", "has no connection to some partitions", "is connected again"
	synctest.Test(t, func(t *testing.T) {
		r := &connected{pausable: receiverOf(), is: messaging.Connection{Parts: 2, Since: time.Now()}}
		var log logbook.Book
		heard := telemetry.Config{Logger: log.Logger()}
		l, err := messaging.NewLoop(one{r}, order, newScript(fine), &messaging.ConsumerConfig{Telemetry: heard})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		after := func(d time.Duration) []any {
			time.Sleep(d)
			synctest.Wait()
			return []any{log.Count(gone), log.Count(partly), log.Count(back), l.Health(time.Minute) == nil}
		}
		require.Equal(t, []any{0, 0, 0, true}, after(time.Hour), "it is idle")
		lost := messaging.Connection{Parts: 2, Away: 2, Since: time.Now(), Err: errors.New("connection refused")}
		r.become(lost)
		require.Equal(t, []any{0, 0, 0, true}, after(5*time.Second), "for a moment")
		require.Equal(t, []any{1, 0, 0, true}, after(10*time.Second))
		require.Equal(t, []any{11, 0, 0, false}, after(10*time.Minute))
		require.ErrorContains(t, l.Health(time.Minute), "lacks 2 of its 2 connections to the broker since")
		require.ErrorContains(t, l.Health(time.Minute), "connection refused")
		r.become(messaging.Connection{Parts: 2, Since: time.Now()})
		require.Equal(t, []any{11, 0, 1, true}, after(10*time.Second))
		r.become(messaging.Connection{Parts: 2, Away: 1, Since: time.Now()})
		require.Equal(t, []any{11, 5, 1, false}, after(6*time.Minute), "a partition")
		cancel()
		require.NoError(t, <-done)
	})
}

// A consumer that stops again and again for one reason says so once a minute.
func TestLoopThatStopsAgainAndAgainIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logbook.Book
		s := &shop{}
		_, stop := loop(t, s, newScript(fine), &messaging.ConsumerConfig{Telemetry: telemetry.Config{Logger: log.Logger()}})
		time.Sleep(10 * time.Minute)
		stop()
		require.Greater(t, len(s.asked), 20)
		require.LessOrEqual(t, log.Count("subscribes again"), 11)
		require.LessOrEqual(t, log.Count("has no connection to the broker"), 11)
		require.Zero(t, log.Count("not seen"))
	})
}
