package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
)

// plan is what is drawn beforehand; what broker and handlers do follows from the seed.
type plan struct {
	keys        []string
	seed        uint64
	concurrency int
	queue       int
	batch       int
}

func drawPlan(t *rapid.T) plan {
	return plan{
		keys:        rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 1, 40).Draw(t, "keys"),
		seed:        rapid.Uint64().Draw(t, "seed"),
		concurrency: rapid.IntRange(1, 4).Draw(t, "concurrency"),
		queue:       rapid.IntRange(5, 10).Draw(t, "queue"),
		batch:       rapid.IntRange(1, 5).Draw(t, "batch"),
	}
}

// hostileBroker keeps what is not acknowledged, as a durable subscription does, and gives it to the next receiver from
// the oldest on. It sends copies of what it sent before, forgets acknowledgements, and kills receivers.
type hostileBroker struct {
	random *rand.Rand
	mu     sync.Mutex
	log    []*messaging.Message
	acked  map[string]bool
}

type hostileReceiver struct {
	*fakeReceiver
	broker *hostileBroker
	forget map[string]bool
}

func (b *hostileBroker) subscribe() *hostileReceiver {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &hostileReceiver{fakeReceiver: newFakeReceiver(), broker: b, forget: map[string]bool{}}
	for i, m := range b.log {
		if b.acked[m.ID] {
			continue
		}
		r.incoming <- m
		switch b.random.IntN(10) {
		case 0: // as a cursor does that goes back: some come again, in order
			for _, again := range b.log[max(i-b.random.IntN(6), 0) : i+1] {
				r.incoming <- again
			}
		case 1:
			r.forget[m.ID] = true
		}
	}
	return r
}

func (r *hostileReceiver) Ack(ctx context.Context, m *messaging.Message) error {
	r.broker.mu.Lock()
	defer r.broker.mu.Unlock()
	if r.forget[m.ID] {
		delete(r.forget, m.ID)
		return errors.New("connection lost")
	}
	r.broker.acked[m.ID] = true
	return r.fakeReceiver.Ack(ctx, m)
}

// Whatever broker and handlers do: every message is handled, for the first time in the order of its key, and none is
// acknowledged without having been handled.
func TestConsumerAgainstAHostileBroker(t *testing.T) {
	nightly.Check(t, 100, 5_000, func(rt *rapid.T) {
		p := drawPlan(rt)
		var wrong []string
		synctest.Test(t, func(*testing.T) { wrong = p.run() })
		require.Empty(rt, wrong)
	})
}

func (p plan) run() (wrong []string) {
	random := rand.New(rand.NewPCG(p.seed, 0))
	b := &hostileBroker{random: random, acked: map[string]bool{}}
	sent := map[string]int{}
	for _, key := range p.keys {
		sent[key]++
		b.log = append(b.log, msg(key, sent[key]))
	}
	var mu sync.Mutex
	handled, next := map[string]bool{}, map[string]int{}
	fate := func() int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(5)
	}
	alone := func(_ context.Context, m *messaging.Message) error {
		n := fate()
		time.Sleep(time.Duration(n) * time.Millisecond)
		switch n {
		case 1:
			return errNotNow
		case 2:
			panic("no")
		}
		mu.Lock()
		defer mu.Unlock()
		if !handled[m.ID] {
			handled[m.ID] = true
			next[m.AggregateID]++
			if want := msg(m.AggregateID, next[m.AggregateID]).ID; m.ID != want {
				wrong = append(wrong, fmt.Sprintf("%s was handled before %s", m.ID, want))
			}
		}
		return nil
	}
	// It handles messages until one of their key fails, and does not name what is behind that one, or forgets it all.
	batch := func(ctx context.Context, msgs []*messaging.Message) error {
		if fate() == 0 {
			return errNotNow
		}
		failed, held := map[int]error{}, map[string]bool{}
		for i, m := range msgs {
			if held[m.AggregateID] {
				continue
			}
			if err := alone(ctx, m); err != nil {
				failed[i], held[m.AggregateID] = err, true
			}
		}
		if len(failed) == 0 {
			return nil
		}
		return &messaging.BatchError{Failed: failed}
	}
	h := newBatchScript(batch, alone)
	cfg := &messaging.ConsumerConfig{Concurrency: p.concurrency, Queue: p.queue, BatchSize: p.batch,
		Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)}}
	for len(b.acked) < len(b.log) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+random.IntN(10_000))*time.Millisecond)
		_ = messaging.NewConsumer(b.subscribe(), h, cfg).Run(ctx)
		cancel()
		for id := range b.acked {
			if !handled[id] {
				wrong = append(wrong, id+" was acknowledged and not handled")
			}
		}
	}
	if len(handled) != len(b.log) {
		wrong = append(wrong, fmt.Sprintf("%d of %d were handled", len(handled), len(b.log)))
	}
	return wrong
}
