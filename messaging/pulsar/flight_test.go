package pulsar

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/messaging"
)

type callback = func(pulsarclient.MessageID, *pulsarclient.ProducerMessage, error)

// fakeProducer does what a test wants with each message.
type fakeProducer struct {
	pulsarclient.Producer

	send  func(id string, done func(error))
	flush func(ctx context.Context) error

	mu      sync.Mutex
	sent    []string        // what SendAsync was called with
	dropped map[string]bool // messages that get the receipt of a duplicate
}

func (p *fakeProducer) SendAsync(_ context.Context, m *pulsarclient.ProducerMessage, done callback) {
	id := m.Properties["ce_id"]
	p.mu.Lock()
	p.sent = append(p.sent, id)
	p.mu.Unlock()
	p.send(id, func(err error) { done(p.place(id), m, err) })
}

// drop makes the receipt of a message look like that of a duplicate.
func (p *fakeProducer) drop(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dropped == nil {
		p.dropped = map[string]bool{}
	}
	p.dropped[id] = true
}

func (p *fakeProducer) place(id string) pulsarclient.MessageID {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dropped[id] {
		return pulsarclient.NewMessageID(-1, -1, 0, 0)
	}
	return pulsarclient.NewMessageID(1, 1, 0, 0)
}

func (p *fakeProducer) FlushWithCtx(ctx context.Context) error {
	if p.flush == nil {
		return nil
	}
	return p.flush(ctx)
}

// fly sends messages whose ids are their keys and a number, a1 a2 b1, and returns the errors by id. With a ! at the end they
// are large.
func fly(ctx context.Context, p *fakeProducer, batched bool, t *topic, ids ...string) (map[string]error, bool) {
	msgs, indexes := make([]event.Envelope, len(ids)), make([]int, len(ids))
	for i, id := range ids {
		msgs[i], indexes[i] = event.Envelope{ID: id, RoutingKey: id[:1]}, i
		if strings.HasSuffix(id, "!") { // larger than a batch
			msgs[i].Payload = make([]byte, batchBytes(1<<20)+1)
		}
		if id[0] == '-' {
			msgs[i].RoutingKey = ""
		}
	}
	byIndex, healthy := newFlight(&producer{Producer: p, batched: batched}, t, 1<<20, msgs).run(ctx, indexes)
	failed := map[string]error{}
	for i, err := range byIndex {
		failed[ids[i]] = err
	}
	return failed, healthy
}

var errTooLargeAlone = errors.New("encryptedPayload exceeds MaxMessageSize") // as the client has it, unexported

func TestFlight(t *testing.T) {
	p := &fakeProducer{send: func(_ string, done func(error)) { go done(nil) }}
	failed, healthy := fly(t.Context(), p, true, &topic{}, "a1", "b1", "a2", "-1")
	require.Empty(t, failed)
	require.True(t, healthy)
	require.Equal(t, []string{"a1", "b1", "a2", "-1"}, p.sent)
}

// The client forgets a message now and then: no callback, ever. Nobody waits longer than the deadline.
func TestFlightWithoutCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		p := &fakeProducer{send: func(id string, done func(error)) {
			if id != "a2" {
				go done(nil)
			}
		}}
		began := time.Now()
		failed, healthy := fly(ctx, p, true, &topic{name: "order"}, "a1", "a2", "a3", "b1")
		require.Equal(t, 5*time.Second, time.Since(began))
		require.False(t, healthy, "the producer is not used any more")
		require.Len(t, failed, 2)
		require.ErrorIs(t, failed["a2"], messaging.ErrUnknown)
		require.ErrorIs(t, failed["a3"], messaging.ErrUnknown, "it is stored, but behind a message that is not")
	})
}

// A callback after the end of the call must not change what was reported.
func TestFlightCallbackTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var late func(error)
		p := &fakeProducer{send: func(_ string, done func(error)) { late = done }}
		failed, _ := fly(ctx, p, true, &topic{}, "a1")
		late(nil)
		late(errors.New("and again"))
		require.ErrorIs(t, failed["a1"], messaging.ErrUnknown)
	})
}

// A failure stops everything: the client would go on with later messages of the key.
func TestFlightStopsAtTheFirstFailure(t *testing.T) {
	p := &fakeProducer{}
	p.send = func(id string, done func(error)) {
		if id == "a2" {
			done(errors.Join(pulsarclient.ErrTopicTerminated, errors.New("server error")))
			return
		}
		done(nil)
	}
	failed, healthy := fly(t.Context(), p, true, &topic{name: "order"}, "a1", "a2", "a3", "b1")
	require.False(t, healthy)
	require.Equal(t, []string{"a1", "a2"}, p.sent)
	trouble, ok := errors.AsType[*messaging.TopicError](failed["a2"])
	require.True(t, ok, "%v", failed["a2"])
	require.Equal(t, "order", trouble.Topic)
	require.ErrorIs(t, failed["a3"], messaging.ErrBehind)
	require.ErrorIs(t, failed["b1"], messaging.ErrUnknown)
	require.NotContains(t, failed, "a1")
}

// A broker that deduplicates confirms messages that it throws away, with a receipt that names no place.
func TestFlightReceiptWithoutAPlace(t *testing.T) {
	p := &fakeProducer{send: func(_ string, done func(error)) { done(nil) }}
	p.drop("a2")
	failed, healthy := fly(t.Context(), p, true, &topic{}, "a1", "a2", "a3", "b1")
	require.False(t, healthy, "the next messages might be duplicates to it too")
	require.Equal(t, []string{"a1", "a2"}, p.sent)
	require.NotContains(t, failed, "a1")
	require.ErrorIs(t, failed["a2"], messaging.ErrUnknown)
	require.ErrorContains(t, failed["a2"], "treated the message as a duplicate")
	require.ErrorIs(t, failed["a3"], messaging.ErrBehind)
	require.ErrorIs(t, failed["b1"], messaging.ErrUnknown)
	require.False(t, isPlace(nil))
}

// The failure may come while the flight waits.
func TestFlightStopsWaitingAtAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProducer{
			send: func(id string, done func(error)) {
				if id == "a1" {
					time.AfterFunc(time.Second, func() { done(pulsarclient.ErrProducerClosed) })
				}
			},
			flush: func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			},
		}
		began := time.Now()
		failed, healthy := fly(t.Context(), p, true, &topic{}, "a1", "b1")
		require.Equal(t, time.Second, time.Since(began), "there is no deadline, and none is needed")
		require.False(t, healthy)
		require.ErrorIs(t, failed["a1"], messaging.ErrUnknown)
		require.ErrorIs(t, failed["b1"], messaging.ErrUnknown)
	})
}

func TestFlightThroughAFullQueue(t *testing.T) {
	var queue []func(error)
	var order []string
	p := &fakeProducer{}
	p.send = func(id string, done func(error)) {
		if len(queue) == 2 {
			done(pulsarclient.ErrSendQueueIsFull)
			return
		}
		queue = append(queue, done)
		order = append(order, id)
	}
	p.flush = func(context.Context) error {
		for _, done := range queue {
			done(nil)
		}
		queue = nil
		return nil
	}
	failed, healthy := fly(t.Context(), p, true, &topic{}, "a1", "a2", "a3", "b1", "a4", "a5")
	require.Empty(t, failed)
	require.True(t, healthy)
	require.Equal(t, []string{"a1", "a2", "a3", "b1", "a4", "a5"}, order)
}

func TestFlightWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p := &fakeProducer{send: func(_ string, done func(error)) { done(pulsarclient.ErrSendQueueIsFull) }}
		failed, healthy := fly(ctx, p, true, &topic{}, "a1", "a2", "b1")
		require.False(t, healthy)
		require.ErrorIs(t, failed["a1"], messaging.ErrUnknown)
		require.ErrorContains(t, failed["a1"], "was not sent")
		require.ErrorIs(t, failed["a2"], messaging.ErrBehind)
		require.ErrorIs(t, failed["b1"], messaging.ErrUnknown)
	})
}

func TestFlightSurvivesTheClientsPanics(t *testing.T) {
	p := &fakeProducer{send: func(string, func(error)) { panic("send on closed channel") }}
	failed, healthy := fly(t.Context(), p, true, &topic{}, "a1", "b1")
	require.False(t, healthy)
	require.ErrorIs(t, failed["a1"], messaging.ErrUnknown)
	require.ErrorIs(t, failed["b1"], messaging.ErrUnknown)
	require.Len(t, p.sent, 1)

	p = &fakeProducer{send: func(string, func(error)) {}, flush: func(context.Context) error { panic("send on closed channel") }}
	failed, healthy = fly(t.Context(), p, true, &topic{}, "a1")
	require.False(t, healthy)
	require.ErrorIs(t, failed["a1"], messaging.ErrUnknown)
}

// A producer that cannot flush will not answer either.
func TestFlightDoesNotWaitBehindAFailedFlush(t *testing.T) {
	p := &fakeProducer{send: func(string, func(error)) {}, flush: func(context.Context) error { return pulsarclient.ErrProducerClosed }}
	failed, healthy := fly(t.Context(), p, true, &topic{}, "a1")
	require.False(t, healthy)
	require.ErrorIs(t, failed["a1"], messaging.ErrUnknown)
}

// The client refuses a payload by itself.
func TestFlightPayloadTooLargeForTheClient(t *testing.T) {
	p := &fakeProducer{send: func(id string, done func(error)) {
		if id == "a1" || id == "-1" {
			done(pulsarclient.ErrMessageTooLarge)
			return
		}
		done(nil)
	}}
	failed, healthy := fly(t.Context(), p, true, &topic{}, "a1", "a2", "b1", "-1", "-2")
	require.True(t, healthy)
	require.True(t, messaging.IsPermanent(failed["a1"]))
	require.True(t, messaging.IsPermanent(failed["-1"]))
	require.ErrorIs(t, failed["a2"], messaging.ErrBehind)
	require.Len(t, failed, 3, "without a key nothing is behind anything")
	require.Equal(t, []string{"a1", "b1", "-1", "-2"}, p.sent)
}

// One message takes its batch down. The next call sends one by one and finds it.
func TestFlightFindsTheOneThatIsTooLarge(t *testing.T) {
	var batch []func(error)
	var size int
	p := &fakeProducer{}
	p.send = func(id string, done func(error)) {
		batch = append(batch, done)
		if id == "b1" {
			size++
		}
	}
	p.flush = func(context.Context) error {
		for _, done := range batch {
			if size > 0 {
				done(errTooLargeAlone)
			} else {
				done(nil)
			}
		}
		batch, size = nil, 0
		return nil
	}
	top := &topic{name: "order"}
	ids := []string{"a1", "b1", "b2", "c1"}
	failed, healthy := fly(t.Context(), p, true, top, ids...)
	require.True(t, healthy)
	for _, id := range ids {
		require.ErrorIs(t, failed[id], messaging.ErrUnknown)
		require.False(t, messaging.IsPermanent(failed[id]))
	}
	failed, healthy = fly(t.Context(), p, true, top, ids...)
	require.True(t, healthy)
	require.True(t, messaging.IsPermanent(failed["b1"]))
	require.ErrorIs(t, failed["b2"], messaging.ErrBehind)
	require.Len(t, failed, 2)

	before := len(p.sent)
	_, _ = fly(t.Context(), p, true, top, "a1", "c1")
	require.False(t, top.careful.Load())
	require.Len(t, p.sent, before+2)

	// Without batches there is no doubt.
	failed, _ = fly(t.Context(), p, false, &topic{}, "b1")
	require.True(t, messaging.IsPermanent(failed["b1"]))
}

// A large message has a batch of its own. Whether that is too large is known late, and nothing of its key is sent before.
func TestFlightWaitsForALargeMessage(t *testing.T) {
	for name, refusal := range map[string]error{"taken": nil, "refused": errTooLargeAlone} {
		t.Run(name, func(t *testing.T) {
			var batch []func(error)
			p := &fakeProducer{}
			p.send = func(id string, done func(error)) {
				if id == "a1!" {
					batch = append(batch, func(error) { done(refusal) })
				} else {
					batch = append(batch, done)
				}
			}
			p.flush = func(context.Context) error {
				p.sent = append(p.sent, "flush")
				for _, done := range batch {
					done(nil)
				}
				batch = nil
				return nil
			}
			top := &topic{name: "order"}
			failed, healthy := fly(t.Context(), p, true, top, "a1!", "b1", "-1!", "-2", "a2", "a3", "b2")
			require.True(t, healthy)
			require.False(t, top.careful.Load(), "it is known which one it was")
			if refusal == nil {
				require.Empty(t, failed)
				require.Equal(t, []string{"a1!", "b1", "-1!", "-2", "b2", "flush", "a2", "a3", "flush"}, p.sent)
				return
			}
			require.Equal(t, []string{"a1!", "b1", "-1!", "-2", "b2", "flush"}, p.sent)
			require.True(t, messaging.IsPermanent(failed["a1!"]))
			require.ErrorIs(t, failed["a2"], messaging.ErrBehind)
			require.ErrorIs(t, failed["a3"], messaging.ErrBehind)
			require.Len(t, failed, 3)
		})
	}
}

// Whatever the client does: what is reported as sent was confirmed, and is a prefix of its key.
func TestFlightKeepsPrefixes(t *testing.T) {
	const (
		confirms = iota
		confirmsAtFlush
		confirmsElsewhere
		drops
		forgets
		isFull
		fails
		failsAtFlush
		batchTooLarge
		tooLarge
		panics
	)
	nightly.Check(t, 100, 3_000, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "messages")
		batched := rapid.Bool().Draw(t, "batched")
		ids := make([]string, n)
		for i := range ids {
			ids[i] = rapid.SampledFrom([]string{"a", "b", "-"}).Draw(t, "key") + strconv.Itoa(i) + rapid.SampledFrom([]string{"", "!"}).Draw(t, "large")
		}
		behaviour := rapid.SampledFrom([]int{
			confirms, confirms, confirmsAtFlush, confirmsAtFlush, confirmsElsewhere, drops, forgets, isFull, fails, failsAtFlush,
			batchTooLarge, tooLarge, panics,
		})
		var (
			mu        sync.Mutex
			confirmed = map[string]bool{}
			early     []string
			atFlush   []func()
			elsewhere sync.WaitGroup
		)
		confirm := func(id string, done func(error)) func() {
			return func() {
				mu.Lock()
				confirmed[id] = true
				mu.Unlock()
				done(nil)
			}
		}
		p := &fakeProducer{}
		p.send = func(id string, done func(error)) {
			for _, before := range p.sent {
				if before[0] == id[0] && id[0] != '-' && before != id && strings.HasSuffix(before, "!") {
					mu.Lock()
					if !confirmed[before] {
						early = append(early, id+" was sent before "+before+" was decided")
					}
					mu.Unlock()
				}
			}
			switch behaviour.Draw(t, id) {
			case confirms:
				confirm(id, done)()
			case confirmsAtFlush:
				atFlush = append(atFlush, confirm(id, done))
			case confirmsElsewhere:
				elsewhere.Go(confirm(id, done))
			case drops:
				p.drop(id)
				atFlush = append(atFlush, func() { done(nil) })
			case isFull:
				done(pulsarclient.ErrSendQueueIsFull)
			case fails:
				done(errors.New("some trouble"))
			case failsAtFlush:
				atFlush = append(atFlush, func() { done(pulsarclient.ErrTopicNotfound) })
			case batchTooLarge:
				atFlush = append(atFlush, func() { done(errTooLargeAlone) })
			case tooLarge:
				done(pulsarclient.ErrMessageTooLarge)
			case panics:
				panic("send on closed channel")
			}
		}
		p.flush = func(context.Context) error {
			for _, fn := range atFlush {
				fn()
			}
			atFlush = nil
			return nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		defer cancel()
		top := &topic{name: "order"}
		top.careful.Store(rapid.Bool().Draw(t, "careful"))
		failed, healthy := fly(ctx, p, batched, top, ids...)
		elsewhere.Wait()
		require.Empty(t, early)

		stopped := map[byte]bool{}
		for _, id := range ids {
			err := failed[id]
			if err == nil {
				require.True(t, confirmed[id], "%s was never confirmed", id)
				require.False(t, id[0] != '-' && stopped[id[0]], "%s was reported as sent behind a message that was not", id)
				continue
			}
			stopped[id[0]] = true
			_, isTopic := errors.AsType[*messaging.TopicError](err)
			known := isTopic || messaging.IsPermanent(err) || errors.Is(err, messaging.ErrUnknown) || errors.Is(err, messaging.ErrBehind)
			require.True(t, known, "%s: %v", id, err)
		}
		if healthy {
			require.Empty(t, atFlush, "the producer is used again with messages under way")
		}
	})
}
