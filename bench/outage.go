package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"text/tabwriter"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"
	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
	"github.com/oncebox/oncebox/telemetry"
)

// outage kills the broker under load and starts it again after a while. It checks the rows, and measures how long the
// relay takes to be as fast as before.
func outage(ctx context.Context, args []string) (err error) {
	var b outageBench
	flags := flag.NewFlagSet("outage", flag.ContinueOnError)
	flags.DurationVar(&b.down, "down", 2*time.Minute, "how long the broker is down before it is started again, at least 20s")
	flags.IntVar(&b.rate, "rate", 2000, "events stored per second, all along")
	if err := parse(flags, args); err != nil {
		return err
	}
	b.down = max(b.down, 20*time.Second)
	// The benchmark kills the broker, so it must not use a running one.
	if err := os.Unsetenv("PULSAR_URL"); err != nil {
		return err
	}
	if b.server, err = devenv.Pulsar(ctx, nil); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.server.Stop()) }()
	return withPostgres(ctx, func(dsn string) error {
		if err := withSchema(ctx, dsn, func(s *schema) error { return b.measure(ctx, s) }); err != nil {
			return err
		}
		return b.report()
	})
}

// outageBench is the state of the command.
type outageBench struct {
	down   time.Duration
	rate   int
	server *devenv.PulsarServer
	meter  rateMeter

	killed, healthy, caughtUp time.Time
	waiting                   int // rows when the broker was back
	attempts, changed         int
	tally                     *tally
}

const outageTopic = "bench-outage"

func (b *outageBench) measure(ctx context.Context, s *schema) (err error) {
	db, err := s.bun(pgx.QueryExecModeExec, 20)
	if err != nil {
		return err
	}
	defer db.Close()
	n, err := newNamespace(ctx, b.server)
	if err != nil {
		return err
	}
	defer n.close(ctx)
	adapter, err := pulsar.Connect(ctx, &pulsar.Config{
		URL: b.server.URL, AdminURL: b.server.AdminURL, Namespace: n.name, Topics: []string{outageTopic}, Partitions: partitions,
		Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)}, // an outage fills pages
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, adapter.Close()) }()
	b.meter.to = adapter
	store := outbox.NewStore(db, &outbox.Config{Schema: s.name})
	p, err := projector.New(&b.meter, &projector.Config{Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)}}, store)
	if err != nil {
		return err
	}
	relaying, stop := context.WithCancel(ctx)
	relayed := make(chan error, 1)
	go func() { relayed <- p.Run(relaying) }()
	stored, err := b.live(ctx, db, store)
	stop()
	if err = errors.Join(err, <-relayed); err != nil {
		return err
	}
	return b.count(ctx, n, stored/aggregates)
}

// live is the life of the broker, under load. It returns how many events were stored when all of them are published.
func (b *outageBench) live(ctx context.Context, db *bun.DB, store *outbox.Store) (stored int, err error) {
	writing, stop := context.WithCancel(ctx)
	var writer sync.WaitGroup
	var failed error
	writer.Go(func() { stored, failed = b.write(writing, db, store) })
	err = b.breakdown(ctx, db)
	stop()
	writer.Wait()
	if err = errors.Join(err, failed); err != nil {
		return stored, err
	}
	return stored, b.until(ctx, db, 0)
}

// breakdown kills the broker, has it started again, and returns when the relay has caught up.
func (b *outageBench) breakdown(ctx context.Context, db *bun.DB) error {
	if err := wait(ctx, 10*time.Second); err != nil {
		return err
	}
	if err := b.server.Kill(); err != nil {
		return err
	}
	b.killed = time.Now()
	progressf("the broker is dead")
	// By then the batches in work are settled or given up.
	if err := wait(ctx, 10*time.Second); err != nil {
		return err
	}
	if err := remember(ctx, db); err != nil {
		return err
	}
	if err := wait(ctx, time.Until(b.killed.Add(b.down))); err != nil {
		return err
	}
	var err error
	if b.changed, b.attempts, err = changes(ctx, db); err != nil {
		return err
	}
	if err := b.server.Restart(ctx); err != nil {
		return err
	}
	b.healthy = time.Now()
	if b.waiting, err = unsent(ctx, db); err != nil {
		return err
	}
	progressf("the broker is back, %d rows wait", b.waiting)
	if err := b.until(ctx, db, b.rate); err != nil {
		return err
	}
	b.caughtUp = time.Now()
	return nil
}

// until waits until no more than so many rows are left.
func (b *outageBench) until(ctx context.Context, db *bun.DB, rows int) error {
	ctx, cancel := context.WithTimeout(ctx, b.down+5*time.Minute)
	defer cancel()
	for {
		left, err := unsent(ctx, db)
		if err != nil || left <= rows {
			return err
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("%w: %d rows wait still: %w", errWrong, left, err)
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// write stores events at the rate until ctx is done, and then the events that are missing to full versions.
func (b *outageBench) write(ctx context.Context, db *bun.DB, store *outbox.Store) (stored int, err error) {
	work := backlog{topic: outageTopic}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil && err == nil {
		n := max(1, b.rate/20)
		err = work.store(context.WithoutCancel(ctx), db, store, stored, n)
		stored += n
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	if rest := stored % aggregates; err == nil && rest > 0 {
		err = work.store(context.WithoutCancel(ctx), db, store, stored, aggregates-rest)
		stored += aggregates - rest
	}
	return stored, err
}

// count reads what has arrived.
func (b *outageBench) count(ctx context.Context, n *namespace, versions int) error {
	b.tally = backlog{topic: outageTopic, versions: versions}.tally()
	return n.read(ctx, outageTopic, func(m client.Message) {
		version, _ := strconv.ParseInt(m.Properties()["ce_aggregateversion"], 10, 64) // 0 is a ghost
		b.tally.add(m.Properties()["ce_subject"], version)
	})
}

// report prints the figures. Messages that came twice are no fault: what was on its way when the broker died was sent
// again.
func (b *outageBench) report() error {
	back, fast := b.meter.back(b.healthy, b.rate)
	progressf("confirmed in each second after the return: %v", b.meter.seconds(b.healthy, 20))
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "stored/s\twaiting at the return\tevents/s while catching up\tcaught up after s\tdoubled")
	fmt.Fprintf(out, "%d\t%d\t%.0f\t%.1f\t%d\n", b.rate, b.waiting,
		float64(b.waiting)/b.caughtUp.Sub(b.healthy).Seconds()+float64(b.rate), b.caughtUp.Sub(b.healthy).Seconds(), b.tally.doubled)
	out.Flush()
	fmt.Printf("outage down_s=%.0f attempts_spent=%d rows_changed=%d lost=%d disordered=%d back_after_s=%.1f\n",
		b.healthy.Sub(b.killed).Seconds(), b.attempts, b.changed, b.tally.lost(), b.tally.disordered, back.Seconds())
	if !fast || b.attempts+b.changed+b.tally.lost()+b.tally.disordered+b.tally.ghosts > 0 {
		return fmt.Errorf("%w: ghosts=%d, as fast as before: %t", errWrong, b.tally.ghosts, fast)
	}
	return nil
}
