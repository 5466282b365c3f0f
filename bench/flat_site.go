package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/outbox"
)

// site is a variant of relay-flat: a schema whose rows stay from round to round.
type site struct {
	name, settings string

	waiting  int  // rows before each run
	drained  int  // rows that a run relays
	clocked  int  // of them until the clock stops
	runs     int  // in a round
	archive  int  // rows sent before the first run
	capacity int  // rows in all rounds
	snapshot bool // an old snapshot is held open during each run

	series

	rss     float64
	prefill time.Duration
	plans   int // statements whose plans were looked at

	schema *schema
	db     *bun.DB
	store  *outbox.Store
	load   *loader
	tally  *tally
	sent   int // rows in the archive
}

// set prepares the schema, up to the rows that wait.
func (s *site) set(ctx context.Context, schema *schema) (done func(), err error) {
	if s.db, err = schema.bun(pgx.QueryExecModeExec, 20); err != nil {
		return nil, err
	}
	s.schema, done = schema, func() { _ = s.db.Close() }
	s.store = outbox.NewStore(s.db, &outbox.Config{Schema: schema.name})
	work := backlog{topic: "bench-" + s.name, versions: s.capacity / aggregates}
	s.tally = work.tally()
	s.tally.partial = true
	work.shared = s.tally
	begin := time.Now()
	s.load, err = newLoader(ctx, s.db, s.store, work)
	if err == nil && s.archive > 0 {
		// Today's partition has to be there before its first row.
		if err = s.store.Upkeep().EnsurePartitions(ctx); err == nil {
			err = s.load.sent(ctx, s.archive/aggregates)
		}
		s.sent = s.archive
	}
	if err == nil {
		err = s.fill(ctx)
	}
	if err == nil {
		err = s.checkPlans(ctx)
	}
	if err != nil {
		done()
		return nil, err
	}
	s.prefill = time.Since(begin)
	progressf("%s: %d plans are as they should be, at %d rows waiting and %d sent", s.name, s.plans, s.waiting, s.sent)
	return done, nil
}

// fill stores as many events as were relayed, so that each run begins with the same number of waiting events.
func (s *site) fill(ctx context.Context) error {
	left := (s.load.next-1)*aggregates - s.tally.arrived
	if err := s.load.waiting(ctx, (s.waiting-left)/aggregates); err != nil {
		return err
	}
	return s.load.settleDown(ctx)
}

// measure does the runs of one round. It adds their rate, and what they used for each event, to the figures of the
// site.
func (s *site) measure(ctx context.Context, b *flatBench) error {
	var took time.Duration
	var used usage
	relayed := 0
	for range s.runs {
		if err := s.fill(ctx); err != nil {
			return err
		}
		r, err := s.run(ctx, b)
		if err != nil {
			return err
		}
		took += r.took
		relayed += r.relayed
		s.rss = max(s.rss, r.rss)
		if used == nil {
			used = make(usage, len(r.cpu))
		}
		for i := range r.cpu {
			used[i] += r.cpu[i]
		}
	}
	s.add(float64(s.clocked*s.runs)/took.Seconds(), used.since(make(usage, len(used)), float64(relayed)))
	return nil
}

// flatRun is what one run of a projector took.
type flatRun struct {
	took    time.Duration
	relayed int
	cpu     usage
	rss     float64
}

func (s *site) run(ctx context.Context, b *flatBench) (r flatRun, err error) {
	topic := s.load.work.topic
	if s.snapshot {
		release, err := holdSnapshot(ctx, s.db)
		if err != nil {
			return r, err
		}
		defer release()
	}
	watch := newStopwatch(s.clocked, s.drained)
	p, err := launchRelayer(ctx, b.namespace.errand("flat", s.schema, topic, b.profile), watch.note)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, b.namespace.removeTopic(ctx, topic)) }()
	meter, memory := b.meter.of(p.pid()), watchMemory(p.pid())
	before := meter.read()
	r.took, err = watch.wait(ctx, p)
	r.cpu = meter.read().since(before, 1)
	r.rss = memory.stop()
	if err = errors.Join(err, p.stop()); err != nil {
		return r, err
	}
	arrived := s.tally.arrived
	if err := errors.Join(b.namespace.count(ctx, topic, s.tally), s.tally.verdict()); err != nil {
		return r, err
	}
	r.relayed = s.tally.arrived - arrived
	s.sent += r.relayed
	return r, s.verify(ctx)
}

// verify compares the tables with the messages that have arrived.
func (s *site) verify(ctx context.Context) error {
	var unsent, held, dead, sent int
	if err := s.db.DB.QueryRowContext(ctx, countRows).Scan(&unsent, &held, &dead, &sent); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	left := (s.load.next-1)*aggregates - s.tally.arrived
	if held+dead > 0 || unsent != left || sent != s.sent {
		return fmt.Errorf("%w: there are %d unsent, %d held, %d dead and %d archived rows, there should be %d, 0, 0 and %d",
			errWrong, unsent, held, dead, sent, left, s.sent)
	}
	return nil
}

// holdSnapshot opens a transaction that sees the rows as they are now until it is released.
func holdSnapshot(ctx context.Context, db *bun.DB) (release func(), err error) {
	conn, err := db.DB.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("hold a snapshot: %w", err)
	}
	for _, statement := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT FROM outbox LIMIT 1"} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return nil, errors.Join(fmt.Errorf("hold a snapshot: %w", err), conn.Close())
		}
	}
	return func() {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		_ = conn.Close()
	}, nil
}
