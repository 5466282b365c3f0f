package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
)

// fairness measures how long events of other tenants wait for the broker's receipt while one tenant has a large
// backlog: once for tenants that come at the same time, and once for tenants that come one by one.
func fairness(ctx context.Context, args []string) error {
	var b fairBench
	flags := flag.NewFlagSet("fairness", flag.ContinueOnError)
	n := flags.Int("n", 1_000_000, "rows of the one tenant, in full thousands")
	flags.IntVar(&b.together, "tenants", 50, "other tenants that store a row at once")
	flags.IntVar(&b.late, "late", 10, "tenants that store a row after them, each when the one before has its receipt")
	broker := flags.String("broker", "pulsar", "pulsar, or none: a publisher that does nothing")
	if err := parse(flags, args); err != nil {
		return err
	}
	b.versions = max(1, *n/aggregates)
	if *broker == noBroker {
		b.open = openNone
		return withPostgres(ctx, func(dsn string) error { return b.run(ctx, dsn) })
	}
	return withServers(ctx, func(r *relayBench) error {
		b.open = r.open
		return b.run(ctx, r.dsn)
	})
}

func (b *fairBench) run(ctx context.Context, dsn string) error {
	if err := withSchema(ctx, dsn, func(s *schema) error { return b.measure(ctx, s) }); err != nil {
		return err
	}
	b.report()
	return nil
}

// fairBench is the state of the command.
type fairBench struct {
	versions       int // of each aggregate of the one tenant
	together, late int
	open           func(ctx context.Context, work backlog) (outlet, error)

	left           int // rows of the backlog when the last receipt came
	others, lonely sample
}

// tally expects as much of the backlog as was published, and one event of each other tenant.
func (b *fairBench) tally() *tally {
	var ids []string
	for i := range aggregates + b.together + b.late {
		ids = append(ids, accountID(i))
	}
	t := newTally(ids, b.versions)
	t.partial = true
	return t
}

func (b *fairBench) measure(ctx context.Context, s *schema) (err error) {
	db, err := s.bun(pgx.QueryExecModeExec, 20)
	if err != nil {
		return err
	}
	defer db.Close()
	store := outbox.NewStore(db, &outbox.Config{Schema: s.name})
	work := backlog{topic: "bench-fairness", versions: b.versions, shared: b.tally()}
	load, err := newLoader(ctx, db, store, work)
	if err == nil {
		err = load.waiting(ctx, b.versions)
	}
	if err == nil {
		err = load.settleDown(ctx)
	}
	if err != nil {
		return err
	}
	out, err := b.open(ctx, work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.close(context.WithoutCancel(ctx))) }()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	receipts := newReceipts(out, work.size())
	if err := b.relay(ctx, receipts, store, func(ctx context.Context) error { return b.visit(ctx, db, store, work, receipts) }); err != nil {
		return err
	}
	if err := out.verify(ctx); err != nil {
		return err
	}
	return b.verify(ctx, db, work.shared)
}

// relay runs a projector as long as fn.
func (b *fairBench) relay(ctx context.Context, to *receipts, store *outbox.Store, fn func(context.Context) error) error {
	p, err := projector.New(to, nil, store)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	err = fn(ctx)
	stop()
	return errors.Join(err, <-ended)
}

// visit stores the events of the other tenants.
func (b *fairBench) visit(ctx context.Context, db *bun.DB, store *outbox.Store, work backlog, to *receipts) error {
	if err := to.underWay(ctx); err != nil {
		return err
	}
	first := aggregates
	for range b.together {
		if err := b.store(ctx, db, store, work, first, to); err != nil {
			return err
		}
		first++
	}
	for i := aggregates; i < first; i++ {
		took, err := to.wait(ctx, accountID(i))
		if err != nil {
			return err
		}
		b.others = append(b.others, took)
	}
	for range b.late {
		if err := b.store(ctx, db, store, work, first, to); err != nil {
			return err
		}
		took, err := to.wait(ctx, accountID(first))
		if err != nil {
			return err
		}
		b.lonely = append(b.lonely, took)
		first++
	}
	if b.left = to.backlog(); b.left <= 0 {
		return fmt.Errorf("the backlog ended before the measurement did: give a larger -n than %d", work.size())
	}
	return nil
}

// store commits one event of a new tenant.
func (b *fairBench) store(ctx context.Context, db *bun.DB, store *outbox.Store, work backlog, n int, to *receipts) error {
	payload, err := newMoneyMoved(accountID(n)).encode()
	if err != nil {
		return err
	}
	e, err := work.envelope(n, payload)
	if err != nil {
		return err
	}
	e.AggregateID, e.RoutingKey, e.AggregateVersion = accountID(n), accountID(n), 1
	e.TenantID = fmt.Sprintf("tenant-%d", n)
	to.expect(e.AggregateID)
	err = db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		return store.Flush(ctx, tx, []event.Envelope{e})
	})
	if err != nil {
		return fmt.Errorf("store the row of %s: %w", e.TenantID, err)
	}
	to.commit(e.AggregateID)
	store.Wake()
	return nil
}

// verify compares the tables with the messages that have arrived.
func (b *fairBench) verify(ctx context.Context, db *bun.DB, t *tally) error {
	var unsent, held, dead, sent int
	if err := db.DB.QueryRowContext(ctx, countRows).Scan(&unsent, &held, &dead, &sent); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	all := b.versions*aggregates + b.together + b.late
	if held+dead > 0 || sent != t.arrived || unsent != all-sent {
		return fmt.Errorf("%w: of %d rows %d arrived, and there are %d unsent, %d held, %d dead and %d archived ones",
			errWrong, all, t.arrived, unsent, held, dead, sent)
	}
	return nil
}

// report prints the table and the line of figures.
func (b *fairBench) report() {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "tenants\tp50 ms\tmax ms\tsettings")
	for _, row := range []struct {
		waits    sample
		settings string
	}{
		{b.others, "each stores a row, right after each other"},
		{b.lonely, "each stores a row when the one before has its receipt"},
	} {
		fmt.Fprintf(out, "%d\t%.0f\t%.0f\t%s\n", len(row.waits), row.waits.median(), row.waits.most(), row.settings)
	}
	out.Flush()
	fmt.Printf("from the commit to the return of Publish, behind %d rows of one tenant (%d were left at the end)\n",
		b.versions*aggregates, b.left)
	under := 0
	for _, ms := range b.others {
		if ms < 1000 {
			under++
		}
	}
	fmt.Printf("fairness tenants=%d under_1s=%d max_ms=%.0f\n", len(b.others), under, b.others.most())
}
