package projector_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
)

// dice is a source of chance that goroutines share.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

// throws returns a source that begins anew with the same seed and number.
func throws(seed, number uint64) *dice { return &dice{rng: rand.New(rand.NewPCG(seed, number))} }

// oneOf is true once in n times.
func (d *dice) oneOf(n int) bool { return d.below(n) == 0 }

func (d *dice) below(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

func (d *dice) upTo(longest time.Duration) time.Duration { return time.Duration(d.below(int(longest))) }

func (d *dice) millis(n int) time.Duration { return d.upTo(time.Duration(n) * time.Millisecond) }

// departures is how events leave: published, for the first time, or discarded by an operator.
type departures struct {
	mu    sync.Mutex
	gone  map[string]bool
	order map[string][]int64 // sequences by key, as they left
	early []string           // published before their time
}

func (d *departures) leave(e *event.Envelope) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.gone[e.ID] {
		d.gone[e.ID] = true
		d.order[e.AggregateID] = append(d.order[e.AggregateID], e.Sequence)
	}
}

func (d *departures) total() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.gone)
}

// moody is a broker that takes most messages. It refuses some now, some for good, and now and then it is away, has trouble with
// the topic, or stores messages and gives no receipt.
type moody struct {
	*recorder

	f    *fixture
	dice *dice
	left *departures
}

func (m *moody) Publish(ctx context.Context, msgs []event.Envelope) error {
	if m.dice.oneOf(6) {
		return messaging.ErrBrokerDown
	}
	var now time.Time // of the database, which decides what is due
	if err := m.f.db.QueryRow("SELECT clock_timestamp()").Scan(&now); err != nil {
		return err
	}
	for i := range msgs {
		if e := &msgs[i]; e.Delivery.NotBefore.After(now) {
			m.left.mu.Lock()
			m.left.early = append(m.left.early, fmt.Sprintf("%s %d, by %s", e.AggregateID, e.Sequence, e.Delivery.NotBefore.Sub(now)))
			m.left.mu.Unlock()
		}
	}
	err := m.recorder.Publish(ctx, msgs)
	if m.dice.oneOf(25) {
		return messaging.ErrUnknown
	}
	return err
}

// answer is what becomes of one message. The recorder calls it in the order in which it stores.
func (m *moody) answer(e event.Envelope) error {
	switch {
	case m.dice.oneOf(12):
		return errNotNow
	case m.dice.oneOf(40):
		return messaging.ErrUnknown
	case m.dice.oneOf(400):
		return &messaging.TopicError{Topic: e.Topic, Err: errors.New("not now")}
	case e.Type == "poison" && m.dice.oneOf(2):
		return messaging.Permanent(errors.New("never"))
	}
	m.left.leave(&e)
	return nil
}

// scribe commits events of all kinds for a few keys.
type scribe struct {
	f         *fixture
	dice      *dice
	keys      int
	committed *atomic.Int64
}

func (s *scribe) write(n int) error {
	for range n {
		now := time.Now()
		key := fmt.Sprint("k", s.dice.below(s.keys))
		var err error
		switch s.dice.below(10) {
		case 0:
			err = s.add(key, "delayed", event.WithNotBefore(now.Add(s.dice.millis(300))))
		case 1:
			err = s.add(key, "expired", event.WithExpiry(now.Add(-time.Second)))
		case 2:
			due := now.Add(s.dice.millis(100))
			err = s.add(key, "short", event.WithNotBefore(due), event.WithExpiry(due.Add(time.Millisecond+s.dice.millis(100))))
		case 3:
			err = s.add(key, "poison")
		default:
			err = s.add(key, "plain")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *scribe) add(key, name string, opts ...event.AddOption) error {
	// A delayed event of an aggregate has an order of its own: here all are in that of the key.
	opts = append(opts, event.WithAggregate("order", key, 1), event.WithOrderingKey(key), event.WithType(name))
	if _, err := pgtest.Add(context.Background(), s.f.db.DB, s.f.store, "order", []byte("x"), opts...); err != nil {
		return err
	}
	s.committed.Add(1)
	if s.dice.oneOf(4) {
		s.f.store.Wake()
	}
	return nil
}

// operate decides about the dead letters of the moment, and looks whether anything is in disorder. Now and then the key of a
// letter that was discarded gets a delayed event at once.
func (s *scribe) operate(left *departures) (discarded int, err error) {
	store := s.f.store
	found, err := store.State().Disorder(context.Background())
	if err != nil || len(found) > 0 {
		return 0, errors.Join(err, fmt.Errorf("disorder: %+v", found))
	}
	letters, err := store.Dead().List(context.Background(), operator.DeadFilter{}, nil, 100)
	for i := range letters {
		e, by := &letters[i].Envelope, operator.By{Actor: "ann", Reason: "a test"}
		if s.dice.oneOf(3) {
			err = errors.Join(err, store.Dead().Replay(context.Background(), e.ID, by))
			continue
		}
		discarded++
		left.leave(e)
		err = errors.Join(err, store.Dead().Discard(context.Background(), e.ID, by))
		if s.dice.oneOf(3) {
			err = errors.Join(err, s.add(e.AggregateID, "delayed", event.WithNotBefore(time.Now().Add(200*time.Millisecond))))
		}
	}
	return discarded, err
}

// Events that are delayed, expired, refused, refused for good or stored without a receipt, projectors that take lanes from each
// other, and an operator who discards and replays, all at once. The events of each key leave in the order of their commits,
// whether they are published or discarded, none leaves before its time, and no repair is needed at any moment.
//
// A seed repeats what each writer writes, and what the broker and the operator decide one after the other. Which of their
// decisions meets which event depends on who comes first, and is another one in each run.
func TestEventsOfAKeyLeaveInOrderHoweverTheyLeave(t *testing.T) {
	for seed := range nightly.Seeds(t, 1, 3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { leaveInOrder(t, seed) })
	}
}

func leaveInOrder(t *testing.T, seed uint64) {
	const writers = 4
	each := nightly.N(100, 2000)
	f := newFixture(t)
	require.NoError(t, f.store.Upkeep().EnsurePartitions(t.Context()))
	operator, broker := throws(seed, 0), throws(seed, 1)
	left := &departures{gone: map[string]bool{}, order: map[string][]int64{}}
	pub := &moody{recorder: f.pub, f: f, dice: broker, left: left}
	f.pub.refuse = pub.answer
	names := []string{"one", "two"}
	for _, name := range names {
		cfg := quick()
		cfg.BlockExpired = true // or an expired row leaves before the rows behind it
		cfg.Name, cfg.MaxRetryAttempts, cfg.MaxCrashes, cfg.CleanInterval, cfg.BatchSize = name, -1, -1, -1, 50
		cfg.Renew = 200 * time.Millisecond
		f.run(f.relay(pub, cfg, f.store))
	}

	s := &scribe{f: f, dice: operator, keys: 20, committed: &atomic.Int64{}}
	var group sync.WaitGroup
	for n := range writers {
		writer := *s
		writer.dice = throws(seed, uint64(2+n))
		group.Go(func() {
			if err := writer.write(each); err != nil {
				t.Error(err)
			}
		})
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		group.Wait()
	}()
	discarded := 0
	for round := 0; ; round++ {
		if round%10 == 0 {
			require.NoError(t, f.vanish(names[operator.below(2)]))
		}
		n, err := s.operate(left)
		require.NoError(t, err)
		discarded += n
		<-time.After(10 * time.Millisecond)
		select {
		case <-written:
		default:
			continue
		}
		if f.rows("outbox_unsent")+f.rows("outbox_held")+f.rows("outbox_dead") == 0 {
			break
		}
	}
	require.EqualValues(t, s.committed.Load(), left.total())
	require.Empty(t, left.early, "published before their time")
	for key, sequences := range left.order {
		require.True(t, slices.IsSortedFunc(sequences, cmp.Compare[int64]), "%s left as %v", key, sequences)
	}
	t.Logf("%d of %d discarded", discarded, left.total())
	require.Positive(t, discarded)
}
