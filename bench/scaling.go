package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
)

// scaling measures several projector processes on one backlog, and how soon the lanes of a killed one are with
// another. Whatever they do, each lane has one owner at a time and each key keeps its order.
func scaling(ctx context.Context, args []string) error {
	b := scaleBench{processes: ints{1, 2, 4}}
	flags := flag.NewFlagSet("scaling", flag.ContinueOnError)
	n := flags.Int("n", 500_000, "events for each figure, in full thousands")
	rounds := flags.Int("rounds", 3, "how often each is measured")
	flags.Var(&b.processes, "processes", "how many projectors")
	if err := parse(flags, args); err != nil {
		return err
	}
	b.versions = max(1, *n/aggregates)
	return withServers(ctx, func(r *relayBench) error {
		b.dsn, b.meter, b.namespace = r.dsn, r.meter, r.namespace
		return b.run(ctx, *rounds)
	})
}

func (b *scaleBench) run(ctx context.Context, rounds int) error {
	b.rates = make([]series, len(b.processes))
	for round := range rounds {
		for i, processes := range b.processes {
			if err := b.measure(ctx, processes, &b.rates[i]); err != nil {
				return fmt.Errorf("%d processes: %w", processes, err)
			}
			progressf("round %d of %d: %d processes %.0f events/s", round+1, rounds, processes, b.rates[i].latest())
		}
		if err := b.kill(ctx); err != nil {
			return fmt.Errorf("one of two is killed: %w", err)
		}
		progressf("round %d of %d: one of two killed, its lanes were taken after %.1f s and published from after %.1f s", round+1, rounds,
			b.taken[round], b.published[round])
	}
	b.report()
	return b.wrong
}

// scaleBench is the state of the command.
type scaleBench struct {
	dsn       string
	versions  int // of each aggregate
	processes ints
	meter     meter
	namespace *namespace

	rates     []series // by processes
	handovers int
	// taken is the time in seconds until the last lane of a killed projector had a new owner, published the time until
	// the first message of the last lane was confirmed, and repeated the number of messages that the topic has twice.
	taken, published, repeated sample
	// undisturbed is how many it has twice although no projector was killed.
	undisturbed int
	// What must be 0, over all runs, and what it was.
	lost, disordered, twoOwners int
	wrong                       error
}

// measure takes the rate of so many processes. They share the lanes before the backlog comes, all at once.
func (b *scaleBench) measure(ctx context.Context, processes int, to *series) error {
	return b.withFleet(ctx, func(f *fleet) error {
		if err := f.start(ctx, processes); err != nil {
			return err
		}
		if err := f.fill(ctx); err != nil {
			return err
		}
		meter := b.meter.of(f.pids()...)
		before := meter.read() // without the prefill
		took, err := f.watch.wait(ctx, f.members...)
		if err != nil {
			return err
		}
		to.add(float64(f.watch.clocked)/took.Seconds(), meter.read().since(before, float64(f.watch.all)))
		if err := f.drained(ctx); err != nil {
			return err
		}
		if err := f.end(ctx); err != nil {
			return err
		}
		b.undisturbed += f.tally.doubled
		return nil
	})
}

// kill has one of two processes end without a chance to do anything, while both publish.
func (b *scaleBench) kill(ctx context.Context) error {
	return b.withFleet(ctx, func(f *fleet) error {
		if err := f.start(ctx, 2); err != nil {
			return err
		}
		if err := f.fill(ctx); err != nil {
			return err
		}
		t, err := f.takeover(ctx)
		if err != nil {
			return err
		}
		if err := f.launch(ctx); err != nil { // it gets its share while the other one publishes
			return err
		}
		if err := f.drained(ctx); err != nil {
			return err
		}
		if err := f.end(ctx); err != nil {
			return err
		}
		b.taken = append(b.taken, t.taken.Seconds())
		b.published = append(b.published, t.published.Seconds())
		b.repeated = append(b.repeated, float64(f.tally.doubled))
		return nil
	})
}

// report prints the table and the line of figures.
func (b *scaleBench) report() {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "processes\tevents/s\tratio\tcpu µs\tsettings")
	var line strings.Builder
	for i, processes := range b.processes {
		s := &b.rates[i]
		fmt.Fprintf(out, "%d\t%s\t%s\t%s\t%s\n", processes, s.rates.rate(), s.rates.over(b.rates[0].rates).ratio(), s.cpu(),
			"the lanes are shared before the backlog comes")
		fmt.Fprintf(&line, " rate_%d=%.0f", processes, s.rates.median())
	}
	out.Flush()
	fmt.Println("cpu: per event, of the projectors + PostgreSQL + Pulsar")
	fmt.Printf("kill -9 of one of two: its lanes were taken after %s s, and published from after %s s; %s messages were published twice\n",
		b.taken.millis(), b.published.millis(), b.repeated.rate())
	fmt.Printf("scaling%s disorder=%d lost=%d two_owners=%d repeated=%d handovers=%d taken_s=%.1f published_s=%.1f\n",
		line.String(), b.disordered, b.lost, b.twoOwners, b.undisturbed, b.handovers, b.taken.most(), b.published.most())
}
