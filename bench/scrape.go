package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/history"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

// scrapeInterval is how often one process of all reads what the gauges show.
const scrapeInterval = 15 * time.Second

// scrapeConsumers is the number of consumers that have a history.
const scrapeConsumers = 20

// scrape measures which share of a core it takes to read the state for the gauges over full tables: the CPU time of
// this program and of its one session of PostgreSQL. The floor is a SELECT 1 in place of each reading.
func scrape(ctx context.Context, args []string) error {
	b := &scrapeBench{}
	flags := flag.NewFlagSet("scrape", flag.ContinueOnError)
	flags.IntVar(&b.tables.waiting, "rows", 10_000_000, "events that wait")
	flags.IntVar(&b.tables.dead, "dead", 1_000_000, "dead letters of the outbox, and of consumers; a tenth of it held, and parked")
	flags.IntVar(&b.tables.answers, "answers", 1_000_000, "idempotency keys")
	flags.IntVar(&b.readings, "readings", 20, "readings in a round")
	flags.IntVar(&b.rounds, "rounds", 5, "how often each is measured")
	if err := parse(flags, args); err != nil {
		return err
	}
	return withPostgres(ctx, func(dsn string) error {
		return withSchema(ctx, dsn, func(s *schema) error { return b.run(ctx, s) })
	})
}

// scrapeBench is the state of the command.
type scrapeBench struct {
	tables           fullTables
	readings, rounds int
}

// historyPart is what the history adds to a reading: the counters of the outbox, and the rows of it and of the consumers, which are written twice.
const historyPart = "history"

// reading is one of the things that are read, and for how many microseconds of CPU.
type reading struct {
	name string
	read func(ctx context.Context) error
	cpu  sample
}

func (b *scrapeBench) run(ctx context.Context, s *schema) error {
	if err := b.tables.fill(ctx, s); err != nil {
		return err
	}
	db, err := s.bun(pgx.QueryExecModeExec, 1) // one session, whose process is measured
	if err != nil {
		return err
	}
	defer db.Close()
	var session int
	if err := db.DB.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&session); err != nil {
		return fmt.Errorf("ask for the process: %w", err)
	}
	m := newMeter().of(os.Getpid(), session)
	readings := readingsOf(db)
	for round := range b.rounds + 1 { // the first one warms up
		for _, r := range readings {
			before := m.read()
			for range b.readings {
				if err := r.read(ctx); err != nil {
					return fmt.Errorf("%s: %w", r.name, err)
				}
			}
			if used := m.read().since(before, float64(b.readings)); round > 0 {
				r.cpu = append(r.cpu, used[0])
			}
		}
	}
	b.report(readings)
	return nil
}

func readingsOf(db *bun.DB) []*reading {
	events, messages, keys := outbox.NewStore(db, nil), inbox.New(uow.New(db, nil), nil), idempotency.NewStore(nil)
	return []*reading{
		{name: floorName, read: func(ctx context.Context) error { _, err := db.ExecContext(ctx, "SELECT 1"); return err }},
		{name: outboxTable, read: func(ctx context.Context) error { _, err := events.State().Stats(ctx); return err }},
		{name: "inbox", read: func(ctx context.Context) error { _, err := messages.State().Stats(ctx); return err }},
		{name: "idempotency", read: func(ctx context.Context) error { _, err := keys.Stats(ctx, db); return err }},
		{name: historyPart, read: func(ctx context.Context) error { return keepHistory(ctx, db, events) }},
	}
}

// keepHistory does what the processes do for the history after their readings.
func keepHistory(ctx context.Context, db *bun.DB, events *outbox.Store) error {
	if _, err := events.State().Traffic(ctx); err != nil {
		return err
	}
	consumers := map[string]operator.Figures{}
	for n := range scrapeConsumers {
		consumers[fmt.Sprint("consumer-", n)] = operator.Figures{Waiting: 1, Parked: 1, Went: 1, Counted: scrapeInterval}
	}
	log := events.Telemetry().Logger
	one := history.Writer{Part: operator.PartOutbox, Run: events.Handle().Run, Log: log}
	one.Note(ctx, db, map[string]operator.Figures{"": {Waiting: 1, Came: 1, Counted: scrapeInterval}})
	for range 2 { // what is parked, and what waits at the broker
		all := history.Writer{Part: operator.PartInbox, Run: events.Handle().Run, Log: log}
		all.Note(ctx, db, consumers)
	}
	return nil
}

func (b *scrapeBench) report(readings []*reading) {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "read\tcpu µs\t% of a core")
	total, kept := 0.0, 0.0
	for _, r := range readings {
		part := r.cpu.median() / float64(scrapeInterval.Microseconds()) * 100
		if r.name != floorName {
			total += part
		}
		if r.name == historyPart {
			kept = part
		}
		fmt.Fprintf(out, "%s\t%s\t%.3f\n", r.name, r.cpu.rate(), part)
	}
	_ = out.Flush()
	fmt.Printf("scrape rows=%d dead=%d core_percent=%.3f history_percent=%.3f\n", b.tables.waiting, b.tables.dead, total, kept)
}
