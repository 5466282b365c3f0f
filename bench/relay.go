package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
)

// relay measures how fast a projector publishes a backlog, with and without an archive of published events. The floor
// is the broker's own client, which sends the same messages from memory.
func relay(ctx context.Context, args []string) (err error) {
	var b relayBench
	flags := flag.NewFlagSet("relay", flag.ContinueOnError)
	n := flags.Int("n", 100_000, "events in the backlog, in full thousands")
	rounds := flags.Int("rounds", 3, "how often each variant is measured")
	broker := flags.String("broker", "pulsar", "pulsar, or none: a publisher that does nothing, for profiles")
	flags.StringVar(&b.only, "only", "", "run this variant alone, for profiles: raw, archive or delete")
	flags.IntVar(&b.cfg.BatchSize, "batch", 0, "projector.Config.BatchSize (0: the default)")
	flags.IntVar(&b.cfg.Workers, "workers", 0, "projector.Config.Workers (0: the default)")
	var files profiles
	files.flags(flags)
	var records figures
	records.flags(flags)
	isPart := flags.Bool("part", false, "be a projector of relay-flat or scaling; they start it by themselves")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *isPart {
		return runRelayer(ctx, os.Stdin, os.Stdout)
	}
	b.versions = max(1, *n/aggregates)

	postgres, err := devenv.Postgres(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, postgres.Stop()) }()
	b.dsn, b.meter, b.open = postgres.URL, newMeter(postgres.URL), openNone
	if *broker != noBroker {
		done, err := b.connect(ctx)
		if err != nil {
			return err
		}
		defer done()
	}
	stop, err := files.start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for round := range *rounds {
		if err := b.round(ctx); err != nil {
			return err
		}
		progressf("round %d of %d: %s", round+1, *rounds, b.latest())
	}
	b.report()
	for _, v := range b.variants() {
		if v.to != &b.raw {
			records.addSeries("Relay/"+v.name, v.to, b.raw.rates)
			records.add("Relay/"+v.name, figure{"B-wal", v.to.log})
		}
	}
	return records.write()
}

// relayBench is the state of the command.
type relayBench struct {
	dsn      string
	versions int // of each aggregate
	cfg      projector.Config
	meter    meter
	open     func(ctx context.Context, work backlog) (outlet, error)
	floor    *raw // nil without a broker, as is the namespace
	only     string
	profile  string // the file for a CPU profile of the next drain alone; "" for none

	namespace *namespace

	raw, archive, remove series
}

// connect makes Pulsar the outlet and finds the messages of the floor.
func (b *relayBench) connect(ctx context.Context) (done func(), err error) {
	server, err := devenv.Pulsar(ctx, nil)
	if err != nil {
		return nil, err
	}
	stop := func() {
		if err := server.Stop(); err != nil {
			progressf("stop Pulsar: %v", err)
		}
	}
	n, err := newNamespace(ctx, server)
	if err != nil {
		stop()
		return nil, err
	}
	done = func() {
		n.close(ctx)
		stop()
	}
	b.meter, b.namespace = newMeter(b.dsn, server.URL), n
	if err := b.rehearse(ctx, n); err != nil {
		done()
		return nil, fmt.Errorf("rehearsal: %w", err)
	}
	return done, nil
}

// outlet is where a relay publishes to, new for each run.
type outlet interface {
	messaging.Publisher
	// verify compares what has arrived with the backlog.
	verify(ctx context.Context) error
	close(ctx context.Context) error
}

// rehearse relays a small backlog, which warms the broker up, and takes what arrived as the messages of the floor: the
// same payloads, keys and properties.
func (b *relayBench) rehearse(ctx context.Context, n *namespace) error {
	progressf("rehearsal: %d events", rehearsal*aggregates)
	sample := &raw{namespace: n, meter: b.meter}
	small := relayBench{dsn: b.dsn, versions: rehearsal, cfg: b.cfg, meter: b.meter, open: func(ctx context.Context, work backlog) (outlet, error) {
		return openPulsar(ctx, n, work, sample)
	}}
	if err := small.drain(ctx, "rehearsal", outbox.DefaultRetention, &small.archive); err != nil {
		return err
	}
	b.floor = sample
	b.open = func(ctx context.Context, work backlog) (outlet, error) { return openPulsar(ctx, n, work, nil) }
	return nil
}

// rehearsal is how many versions of each aggregate the rehearsal relays.
const rehearsal = 10

func (b *relayBench) round(ctx context.Context) error {
	for _, v := range b.variants() {
		if err := v.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
	}
	return nil
}

// variant is a row of the table.
type variant struct {
	name, settings string
	to             *series
	run            func(ctx context.Context) error
}

// variants returns the variants that were asked for, the floor first.
func (b *relayBench) variants() []variant {
	all := []variant{
		{"archive", "projector, sent rows are kept", &b.archive, func(ctx context.Context) error {
			return b.drain(ctx, "archive", outbox.DefaultRetention, &b.archive)
		}},
		{"delete", "projector, sent rows are deleted", &b.remove, func(ctx context.Context) error {
			return b.drain(ctx, "delete", outbox.NoRetention, &b.remove)
		}},
	}
	if b.floor != nil {
		all = append([]variant{{"raw", floorSettings, &b.raw, func(ctx context.Context) error {
			return b.floor.send(ctx, b.versions*aggregates, &b.raw)
		}}}, all...)
	}
	var out []variant
	for _, v := range all {
		if b.only == "" || b.only == v.name {
			out = append(out, v)
		}
	}
	return out
}

// drain fills an outbox and lets a projector publish it all.
func (b *relayBench) drain(ctx context.Context, name string, retention time.Duration, to *series) error {
	work := backlog{topic: "bench-" + name, versions: b.versions}
	return withSchema(ctx, b.dsn, func(s *schema) (err error) {
		db, err := s.bun(pgx.QueryExecModeExec, 20)
		if err != nil {
			return err
		}
		defer db.Close()
		store := outbox.NewStore(db, &outbox.Config{Schema: s.name, Retention: retention})
		beginLog(ctx, db)
		if err := work.fill(ctx, db, store); err != nil {
			return err
		}
		out, err := b.open(ctx, work)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, out.close(context.WithoutCancel(ctx))) }()
		runtime.GC() // no run pays for the garbage of another
		n := work.size()
		stop, err := (&profiles{cpu: b.profile}).start()
		if err != nil {
			return err
		}
		before, written := b.meter.read(), writtenLog(ctx, db)
		err = labelled(ctx, name, func(ctx context.Context) error {
			took, err := b.run(ctx, out, store, n)
			to.add(float64(n)/took.Seconds(), b.meter.read().since(before, float64(n)))
			to.log = append(to.log, (writtenLog(ctx, db)-written)/float64(n))
			return err
		})
		if err = errors.Join(err, stop()); err != nil {
			return err
		}
		return errors.Join(work.verify(ctx, db, retention != outbox.NoRetention), out.verify(ctx))
	})
}

// run runs a projector until the outlet has confirmed n events, the last batch is settled and the lanes are handed back.
func (b *relayBench) run(ctx context.Context, out messaging.Publisher, store *outbox.Store, n int) (time.Duration, error) {
	bound := time.Minute + time.Duration(n)*time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	counted := &counter{to: out, done: cancel}
	counted.left.Store(int64(n))
	p, err := projector.New(counted, &b.cfg, store)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	err = p.Run(ctx)
	took := time.Since(start)
	if left := counted.left.Load(); err == nil && left > 0 {
		err = fmt.Errorf("%w: %d of %d events were not published within %s", errWrong, left, n, bound)
	}
	return took, err
}

// counter passes messages on and calls done when enough of them were confirmed.
type counter struct {
	to   messaging.Publisher
	left atomic.Int64
	done func()
}

// Publish passes msgs on.
func (c *counter) Publish(ctx context.Context, msgs []event.Envelope) error {
	err := c.to.Publish(ctx, msgs)
	if c.left.Add(-int64(confirmed(msgs, err))) <= 0 {
		c.done()
	}
	return err
}

// confirmed returns how many of msgs the broker confirmed.
func confirmed(msgs []event.Envelope, err error) int {
	var partial *messaging.PublishError
	switch {
	case errors.As(err, &partial):
		return len(msgs) - len(partial.Failed)
	case err != nil:
		return 0
	default:
		return len(msgs)
	}
}

// latest describes the latest round.
func (b *relayBench) latest() string {
	var text strings.Builder
	for _, v := range b.variants() {
		fmt.Fprintf(&text, "%s %.0f ", v.name, v.to.latest())
	}
	return text.String() + "events/s"
}

// report prints the table and, unless the run was for a profile only, the line of figures.
func (b *relayBench) report() {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "variant\tevents/s\tratio\tcpu µs\tWAL bytes\tsettings")
	for _, v := range b.variants() {
		ratio := "-"
		if v.name != "raw" && len(b.raw.rates) > 0 {
			ratio = v.to.rates.over(b.raw.rates).ratio()
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\n", v.name, v.to.rates.rate(), ratio, v.to.cpu(), v.to.log.rate(), v.settings)
	}
	out.Flush()
	fmt.Println("cpu and WAL: per event; cpu of this program + PostgreSQL + Pulsar")
	if b.floor != nil && b.only == "" {
		kept, deleted := b.archive.cpu(), b.remove.cpu()
		fmt.Printf("relay ratio_archive=%.2f ratio_delete=%.2f events_per_s=%.0f wal_b=%.0f prog_us=%.1f pg_us=%.1f broker_us=%.1f "+
			"delete_wal_b=%.0f delete_prog_us=%.1f delete_pg_us=%.1f delete_broker_us=%.1f\n",
			b.archive.rates.over(b.raw.rates).median(), b.remove.rates.over(b.raw.rates).median(), b.archive.rates.median(),
			b.archive.log.median(), kept[0], kept[1], kept[2], b.remove.log.median(), deleted[0], deleted[1], deleted[2])
	}
}
