package projector_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/nightly"
)

// harsh is a publisher that refuses some messages and is slow with some calls.
type harsh struct {
	*recorder

	dice    *dice
	refused atomic.Int64
	slow    time.Duration
}

var errNotNow = errors.New("not now")

func newHarsh(r *recorder, d *dice, refuseOneOf int, slow time.Duration) *harsh {
	h := &harsh{recorder: r, dice: d, slow: slow}
	r.refuseWith(func(event.Envelope) error {
		if !d.oneOf(refuseOneOf) {
			return nil
		}
		h.refused.Add(1)
		return errNotNow
	})
	return h
}

func (h *harsh) Publish(ctx context.Context, msgs []event.Envelope) error {
	if h.slow > 0 && h.dice.oneOf(4) {
		<-time.After(h.dice.upTo(h.slow))
	}
	return h.recorder.Publish(ctx, msgs)
}

// requireOrder compares what was on the wire with what was committed: nothing is missing or was never committed, and the
// first copies of each key are in the order of its commits.
func (r *recorder) requireOrder(t *testing.T, committed []string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	seen, last := map[string]bool{}, map[string]int64{}
	var first []string
	for _, m := range r.taken {
		if seen[m.ID] {
			continue
		}
		seen[m.ID] = true
		first = append(first, m.ID)
		require.Greater(t, m.Sequence, last[m.AggregateID], "%s was overtaken under its key", m.AggregateID)
		last[m.AggregateID] = m.Sequence
	}
	require.ElementsMatch(t, committed, first)
}

func (r *recorder) highest() (seq int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.taken {
		seq = max(seq, m.Sequence)
	}
	return seq
}

func (r *recorder) distinct() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := map[string]bool{}
	for _, m := range r.taken {
		ids[m.ID] = true
	}
	return len(ids)
}

// writers commits events of hot keys from several goroutines, some of them long after they got their numbers.
type writers struct {
	f      *fixture
	dice   *dice
	keys   int
	lateBy time.Duration // at most; 0: none commits late

	mu        sync.Mutex
	committed []string
	late      int // commits of rows with a higher one on the wire
}

func (w *writers) run(n, each int) {
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			for i := range each {
				if err := w.write(i); err != nil {
					w.f.t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

func (w *writers) write(i int) error {
	ctx := context.Background()
	tx, err := w.f.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // of no effect after the commit
	key := fmt.Sprint("k", w.dice.below(w.keys))
	id, err := w.f.store.Add(ctx, tx, "order", []byte("x"), event.WithAggregate("order", key, 1), event.WithType("hot"))
	if err != nil {
		return err
	}
	late := false
	if i%15 == 0 && w.lateBy > 0 {
		var seq int64
		if err := tx.NewRaw("SELECT seq FROM outbox WHERE id = ?", id).Scan(ctx, &seq); err != nil {
			return err
		}
		<-time.After(w.dice.upTo(w.lateBy)) // while others commit higher numbers
		late = w.f.pub.highest() > seq
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.committed = append(w.committed, id)
	if late {
		w.late++
	}
	return nil
}

// vanish makes it look as if a projector had been silent for longer than its leases last. The projector goes on all the same.
func (f *fixture) vanish(name string) error {
	_, err := f.db.Exec("DELETE FROM outbox_projector WHERE owner = ?", name)
	if err != nil {
		return err
	}
	_, err = f.db.Exec(`
		WITH mine AS MATERIALIZED (SELECT lane FROM outbox_lane WHERE owner = ? ORDER BY lane FOR UPDATE)
		UPDATE outbox_lane l SET lease_until = '-infinity' FROM mine WHERE l.lane = mine.lane`, name)
	return err
}

// Hot keys, two projectors that take lanes from each other in the middle of batches, refusals, and transactions that
// commit late, all at once. It proves something only if each of these happened.
func TestOrderUnderTakeoversHoldsAndLateCommits(t *testing.T) {
	for seed := range nightly.Seeds(t, 1, 3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { orderUnderTakeovers(t, seed) })
	}
}

func orderUnderTakeovers(t *testing.T, seed uint64) {
	f := newFixture(t)
	_, err := f.db.Exec(`
		CREATE TABLE takeover (lane smallint);
		CREATE FUNCTION note_takeover() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO takeover VALUES (NEW.lane); RETURN NULL; END';
		CREATE TRIGGER note_takeover AFTER UPDATE ON outbox_lane FOR EACH ROW
			WHEN (OLD.owner <> NEW.owner) EXECUTE FUNCTION note_takeover()`)
	require.NoError(t, err)
	pub := newHarsh(f.pub, throws(seed, 0), 15, 150*time.Millisecond)
	names := []string{"one", "two"}
	for _, name := range names {
		cfg := quick()
		cfg.Name, cfg.MaxRetryAttempts, cfg.MaxCrashes, cfg.BatchSize = name, -1, -1, 50
		cfg.Renew, cfg.Retry.Delay, cfg.Retry.MaxDelay = 20*time.Millisecond, 50*time.Millisecond, 100*time.Millisecond
		p := f.relay(pub, cfg, f.store)
		f.run(p)
	}

	each := nightly.N(75, 150)
	w := &writers{f: f, dice: throws(seed, 1), keys: 100, lateBy: 400 * time.Millisecond}
	written := make(chan struct{})
	go func() {
		defer close(written)
		w.run(8, each)
		for (w.late == 0 || f.rows("takeover") == 0) && !t.Failed() { // a machine that stands still for long makes neither
			w.run(8, 1)
		}
	}()
	for round := 0; ; round++ {
		select {
		case <-written:
		case <-time.After(100 * time.Millisecond):
			if err := f.vanish(names[round%2]); err != nil {
				t.Error(err)
			}
			continue
		}
		break
	}
	require.GreaterOrEqual(t, len(w.committed), 8*each)
	f.eventually("all are sent", func() bool { return f.pub.distinct() == len(w.committed) })
	f.pub.requireOrder(t, w.committed)

	var takeovers int
	require.NoError(t, f.db.QueryRow("SELECT count(*) FROM takeover").Scan(&takeovers))
	t.Logf("%d takeovers of lanes, %d refusals, %d late commits, %d copies", takeovers, pub.refused.Load(), w.late, f.pub.total()-len(w.committed))
	require.Positive(t, takeovers)
	require.Positive(t, pub.refused.Load())
	require.Positive(t, w.late)
}
