package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/outbox"
)

// fleet is several projectors, each in a process of its own, on one schema.
type fleet struct {
	b       *scaleBench
	schema  *schema
	db      *bun.DB
	store   *outbox.Store
	load    *loader
	tally   *tally
	watch   *stopwatch
	members []*relayer
	topic   string

	mu   sync.Mutex
	seen []publication
}

// withFleet makes a fleet without members, runs fn, and stops the members if fn fails. Messages of a killed projector,
// or of a projector whose settlement has timed out on a slow disk, may come twice.
func (b *scaleBench) withFleet(ctx context.Context, fn func(*fleet) error) error {
	return withSchema(ctx, b.dsn, func(s *schema) (err error) {
		if err := s.exec(ctx, createAudit); err != nil {
			return err
		}
		db, err := s.bun(pgx.QueryExecModeExec, 20)
		if err != nil {
			return err
		}
		defer db.Close()
		work := backlog{topic: "bench-scaling", versions: b.versions}
		f := &fleet{
			b: b, schema: s, db: db, store: outbox.NewStore(db, &outbox.Config{Schema: s.name}), tally: work.tally(),
			watch: newStopwatch(work.size()*9/10, work.size()), topic: work.topic,
		}
		f.tally.repeats = true
		if f.load, err = newLoader(ctx, db, f.store, work); err != nil {
			return err
		}
		defer func() {
			for _, r := range f.members {
				err = errors.Join(err, r.stop())
			}
		}()
		return fn(f)
	})
}

func (f *fleet) launch(ctx context.Context) error {
	name := "projector-" + strconv.Itoa(len(f.members)+1)
	r, err := launchRelayer(ctx, f.b.namespace.errand(name, f.schema, f.topic, ""), f.note)
	if err == nil {
		f.members = append(f.members, r)
	}
	return err
}

func (f *fleet) note(p publication) {
	f.mu.Lock()
	f.seen = append(f.seen, p)
	f.mu.Unlock()
	f.watch.note(p)
}

func (f *fleet) pids() []int {
	var out []int
	for _, r := range f.members {
		out = append(out, r.pid())
	}
	return out
}

// fill stores the backlog in one transaction, so that all members see it at once.
func (f *fleet) fill(ctx context.Context) error {
	if err := f.load.waitingAtOnce(ctx, f.load.work.versions); err != nil {
		return err
	}
	f.store.Wake()
	return nil
}

// start starts projectors, and waits until they have equal shares of the lanes.
func (f *fleet) start(ctx context.Context, processes int) error {
	for range processes {
		if err := f.launch(ctx); err != nil {
			return err
		}
	}
	return f.share(ctx)
}

func (f *fleet) share(ctx context.Context) error {
	share := (64 + len(f.members) - 1) / len(f.members)
	return f.until(ctx, "the lanes are shared", func() (bool, error) {
		lanes, err := f.lanes(ctx)
		if len(lanes) != len(f.members) {
			return false, err
		}
		for _, held := range lanes {
			if len(held) > share {
				return false, err
			}
		}
		return true, err
	})
}

// drained waits until no row is left.
func (f *fleet) drained(ctx context.Context) error {
	return f.until(ctx, "the outbox is empty", func() (empty bool, err error) {
		err = f.db.DB.QueryRowContext(ctx, "SELECT NOT EXISTS (SELECT FROM outbox_unsent)").Scan(&empty)
		return empty, err
	})
}

// until checks every 50 ms.
func (f *fleet) until(ctx context.Context, what string, is func() (bool, error)) error {
	bound := time.Minute + time.Duration(f.load.work.size())*time.Millisecond
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("it took more than %s until %s", bound, what))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := is(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// lanes returns the owner of each.
func (f *fleet) lanes(ctx context.Context) (map[string][]int, error) {
	rows, err := f.db.DB.QueryContext(ctx, "SELECT owner, lane FROM outbox_lane WHERE owner IS NOT NULL")
	if err != nil {
		return nil, fmt.Errorf("read the lanes: %w", err)
	}
	defer rows.Close()
	out := map[string][]int{}
	for rows.Next() {
		var owner string
		var lane int
		if err := rows.Scan(&owner, &lane); err != nil {
			return nil, fmt.Errorf("read the lanes: %w", err)
		}
		out[owner] = append(out[owner], lane)
	}
	return out, rows.Err()
}

// takeover is how long it takes after the end of a projector until all its lanes have a new owner, and until messages
// of all of them are confirmed again.
type takeover struct{ taken, published time.Duration }

// takeover kills the first member when a tenth of the backlog is published.
func (f *fleet) takeover(ctx context.Context) (t takeover, err error) {
	err = f.until(ctx, "a tenth was published", func() (bool, error) { return f.watch.count() >= f.watch.all/10, nil })
	if err != nil {
		return t, err
	}
	victim := f.members[0]
	lanes, err := f.lanes(ctx)
	if err != nil {
		return t, err
	}
	orphans := lanes[victim.name]
	var byServer time.Time
	if err := f.db.DB.QueryRowContext(ctx, "SELECT clock_timestamp()").Scan(&byServer); err != nil {
		return t, fmt.Errorf("read the clock: %w", err)
	}
	killed := time.Now()
	f.members = f.members[1:]
	if err := victim.kill(); err != nil {
		return t, err
	}
	err = f.until(ctx, "the lanes of the killed projector were published from; a larger -n keeps rows in them", func() (bool, error) {
		last, all := f.published(orphans, killed)
		t.published = last.Sub(killed)
		return all, nil
	})
	if err != nil {
		return t, err
	}
	all, err := handovers(ctx, f.db)
	if err != nil {
		return t, err
	}
	for _, h := range all {
		if h.was == victim.name && h.owner == f.members[0].name && slices.Contains(orphans, h.lane) {
			t.taken = max(t.taken, h.at.Sub(byServer))
		}
	}
	return t, nil
}

// published returns when the last of the lanes was first published from since then, and whether all were.
func (f *fleet) published(lanes []int, since time.Time) (last time.Time, all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var left uint64
	for _, lane := range lanes {
		left |= 1 << lane
	}
	for _, p := range f.seen {
		if p.By == f.members[0].name && p.Begin.After(since) && p.Confirmed > 0 && p.Lanes&left != 0 {
			left &^= p.Lanes
			last = p.End
		}
	}
	return last, left == 0
}

// end stops the members, and compares what they published with the backlog.
func (f *fleet) end(ctx context.Context) (err error) {
	for _, r := range f.members {
		err = errors.Join(err, r.stop())
	}
	f.members = nil
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.b.namespace.removeTopic(ctx, f.topic)) }()
	if err := f.b.namespace.count(ctx, f.topic, f.tally); err != nil {
		return err
	}
	all, err := handovers(ctx, f.db)
	if err != nil {
		return err
	}
	f.b.judge(f.tally, all, f.seen)
	return f.load.work.verify(ctx, f.db, true)
}

// judge adds the faults of a run.
func (b *scaleBench) judge(t *tally, all []handover, seen []publication) {
	b.handovers += len(all)
	b.lost += t.lost()
	b.disordered += t.disordered
	b.wrong = errors.Join(b.wrong, t.verdict())
	for _, err := range []error{soleOwners(all), solePublishers(seen)} {
		if err != nil {
			b.twoOwners++
			b.wrong = errors.Join(b.wrong, err)
		}
	}
}
