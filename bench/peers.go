package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
)

// peers compares oncebox with other libraries of Go at the same work: a business transaction with one event, and a backlog of such events that goes
// out, once to a receiver that does nothing and once to Pulsar. Each library is used as its documentation says, with the settings that were fastest.
func peers(ctx context.Context, args []string) error {
	b := &peersBench{}
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.IntVar(&b.rounds, "rounds", 3, "how often each is measured")
	flags.DurationVar(&b.length, "time", 3*time.Second, "how long each run of the transactions takes")
	n := flags.Int("n", 100_000, "events in the backlog, in full thousands")
	flags.DurationVar(&b.bound, "bound", 20*time.Second, "after this time a relay is stopped, and what it has done counts")
	b.figures.flags(flags)
	flags.StringVar(&b.only, "only", "", "measure this library alone")
	if err := parse(flags, args); err != nil {
		return err
	}
	return withServers(ctx, func(r *relayBench) error {
		b.relay, b.work = r, backlog{topic: "bench-peers", versions: max(1, *n/aggregates)}
		return b.run(ctx)
	})
}

// peer is a library at work in a schema of its own.
type peer interface {
	session
	// record stores events in one transaction.
	record(ctx context.Context, events []delivery) error
	// relay delivers recorded events to the sink until ctx is done, and returns when it has stopped.
	relay(ctx context.Context, to *sink) error
	// left returns the number of events that are recorded and not delivered.
	left(ctx context.Context) (int, error)
}

// library is a row of the table.
type library struct {
	name, settings string
	open           func(ctx context.Context, s *schema, conns int) (peer, error)

	commit, none, pulsar series
	faults               [2]faults // in all runs of none and of pulsar
}

// faults counts events that came out of order, and events that came twice.
type faults struct{ disordered, doubled int }

// peersBench is the state of the command.
type peersBench struct {
	rounds        int
	length, bound time.Duration
	only          string
	figures       figures
	relay         *relayBench
	work          backlog
	libraries     []*library
}

// peerConns is the size of each library's pool.
const peerConns = 16

func (b *peersBench) run(ctx context.Context) error {
	for _, l := range []*library{
		{name: "oncebox", settings: "defaults", open: openOnceboxPeer},
		{name: "river", settings: "2,000 workers, fetch cooldown 2 ms, poll 20 ms", open: openRiver},
		{name: "watermill-sql", settings: "PostgreSQL schema with offsets, batches of 1,000, poll 10 ms", open: openWatermill},
		{name: "oagudo/outbox", settings: "read and delete batches of 1,000, interval 1 ms", open: openOagudo},
	} {
		if b.only == "" || b.only == l.name {
			b.libraries = append(b.libraries, l)
		}
	}
	for round := range b.rounds {
		for _, l := range b.libraries {
			if err := b.measure(ctx, l); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			progressf("round %d of %d: %s %.0f tx/s, relay %.0f/s, to Pulsar %.0f/s", round+1, b.rounds, l.name,
				l.commit.latest(), l.none.latest(), l.pulsar.latest())
		}
	}
	b.report()
	rates := map[string]sample{}
	for _, l := range b.libraries {
		rates[l.name] = l.commit.rates
	}
	if ours, theirs := rates["oncebox"], rates["watermill-sql"]; ours != nil && theirs != nil {
		ratio := ours.over(theirs)
		fmt.Println("peers commit ratio_watermill:", ratio.ratio())
		b.figures.add("Peers/commit/floor=watermill-sql", figure{ofFloor, percent(ratio)})
	}
	return b.figures.write()
}

func (b *peersBench) measure(ctx context.Context, l *library) error {
	return errors.Join(
		b.transactions(ctx, l),
		b.drain(ctx, l, 0, &l.none, func() (*sink, error) { return newSink(b.work), nil }),
		b.drain(ctx, l, 1, &l.pulsar, func() (*sink, error) { return newPulsarSink(ctx, b.relay.namespace, b.work) }),
	)
}

// transactions measures commits of 8 clients, with one event each.
func (b *peersBench) transactions(ctx context.Context, l *library) error {
	return withSchema(ctx, b.relay.dsn, func(s *schema) error {
		if err := s.exec(ctx, fmt.Sprintf(createAccounts, aggregates-1), storeAccounts); err != nil {
			return err
		}
		p, err := l.open(ctx, s, peerConns)
		if err != nil {
			return err
		}
		defer p.close()
		runtime.GC() // no run pays for the garbage of another
		committed, err := cell{k: 1, clients: 8}.race(ctx, p, b.length, newMeter(b.relay.dsn), &l.commit)
		if err != nil {
			return err
		}
		left, err := p.left(ctx)
		if err == nil && int64(left) != committed {
			err = fmt.Errorf("%w: %d transactions were committed, and there are %d events", errWrong, committed, left)
		}
		return err
	})
}

// drain measures how fast a backlog goes out.
func (b *peersBench) drain(ctx context.Context, l *library, place int, to *series, open func() (*sink, error)) error {
	return withSchema(ctx, b.relay.dsn, func(s *schema) (err error) {
		p, err := l.open(ctx, s, peerConns)
		if err != nil {
			return err
		}
		defer p.close()
		if err := b.fill(ctx, p); err != nil {
			return err
		}
		db, err := s.bun(pgx.QueryExecModeExec, 1)
		if err != nil {
			return err
		}
		defer db.Close()
		out, err := open()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, out.close(context.WithoutCancel(ctx))) }()
		beginLog(ctx, db)
		runtime.GC()
		before, written := b.relay.meter.read(), writtenLog(ctx, db)
		done, took, err := b.watch(ctx, p, out)
		if err != nil {
			return err
		}
		to.add(done/took.Seconds(), b.relay.meter.read().since(before, done))
		to.log = append(to.log, (writtenLog(ctx, db)-written)/done)
		l.faults[place].add(out)
		return nil
	})
}

// add counts what a run has brought to its sink.
func (f *faults) add(of *sink) {
	of.mu.Lock()
	defer of.mu.Unlock()
	f.disordered += of.tally.disordered
	f.doubled += of.tally.doubled
}

func (b *peersBench) fill(ctx context.Context, p peer) error {
	payload, err := newMoneyMoved(accountID(0)).encode()
	if err != nil {
		return err
	}
	for first := 0; first < b.work.size(); first += 1000 {
		events := make([]delivery, 1000)
		for i := range events {
			n := first + i
			events[i] = delivery{Account: accountID(n % aggregates), Version: int64(n/aggregates) + 1, Payload: payload}
		}
		if err := p.record(ctx, events); err != nil {
			return fmt.Errorf("prefill: %w", err)
		}
	}
	return nil
}

// watch runs the relay until everything is delivered and recorded as such, or the time is over. It returns the number
// of delivered events, and the time up to the last delivery. The CPU time of a run includes that of the last records.
func (b *peersBench) watch(ctx context.Context, p peer, out *sink) (done float64, took time.Duration, err error) {
	bounded, cancel := context.WithTimeout(ctx, b.bound)
	defer cancel()
	start := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- p.relay(bounded, out) }()
	select {
	case <-out.all:
		took = time.Since(start)
		err = b.settled(bounded, p)
	case <-bounded.Done():
		took = time.Since(start)
	}
	done = float64(out.delivered.Load())
	cancel()
	return done, took, errors.Join(err, <-ended)
}

// settled waits until the library has recorded that everything is delivered.
func (b *peersBench) settled(ctx context.Context, p peer) error {
	for {
		left, err := p.left(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the bound is over
		}
		if err != nil || left == 0 {
			return err
		}
		pause(ctx, 10*time.Millisecond)
	}
}

func (b *peersBench) report() {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "library\tcommits/s\tcpu µs\trelay/s\tcpu µs\tWAL bytes\tto Pulsar/s\tcpu µs\tout of order\ttwice")
	for _, l := range b.libraries {
		none, broker := l.faults[0], l.faults[1]
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%.0f\t%s\t%s\t%d, %d\t%d, %d\n", l.name, l.commit.rates.rate(), l.commit.cpu(),
			l.none.rates.rate(), l.none.cpu()[:2], l.none.log.median(), l.pulsar.rates.rate(), l.pulsar.cpu(),
			none.disordered, broker.disordered, none.doubled, broker.doubled)
	}
	out.Flush()
	fmt.Println("cpu and WAL: per event; cpu of this program + PostgreSQL (+ Pulsar).")
	fmt.Println("Out of order and twice: events of all rounds, without a broker and with Pulsar.")
	var text strings.Builder
	for _, l := range b.libraries {
		fmt.Fprintf(&text, "%s: %s. ", l.name, l.settings)
	}
	fmt.Println(text.String())
}
