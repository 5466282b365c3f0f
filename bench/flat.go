package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"text/tabwriter"
	"time"
)

// relayFlat measures whether the rate of a projector depends on the size of the tables: on waiting rows, on rows that
// were published today, and on dead index entries that VACUUM may not remove while an old snapshot is open.
func relayFlat(ctx context.Context, args []string) error {
	var b flatBench
	flags := flag.NewFlagSet("relay-flat", flag.ContinueOnError)
	flags.IntVar(&b.n, "n", 500_000, "events to relay for each figure")
	backlog := flags.Int("backlog", 10_000_000, "waiting rows of the large backlog, in full thousands")
	sent := flags.Int("sent", 10_000_000, "rows of the large archive, in full thousands")
	rounds := flags.Int("rounds", 3, "how often each variant is measured")
	flags.StringVar(&b.only, "only", "", "run this variant beside the floor, for profiles: base (nothing beside it), large, sent or snapshot")
	flags.StringVar(&b.profile, "cpuprofile", "", "write a CPU profile of the projector to this file; the last run stays")
	if err := parse(flags, args); err != nil {
		return err
	}
	b.plan(*backlog, *sent, *rounds)
	return withServers(ctx, func(r *relayBench) error {
		b.dsn, b.meter, b.namespace = r.dsn, r.meter, r.namespace
		return b.withSites(ctx, b.sites, func() error { return b.run(ctx, *rounds) })
	})
}

func (b *flatBench) run(ctx context.Context, rounds int) error {
	for round := range rounds {
		for _, s := range b.sites {
			if err := s.measure(ctx, b); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			progressf("round %d of %d: %s %.0f events/s", round+1, rounds, s.name, s.latest())
		}
	}
	b.report()
	return nil
}

// flatBench is the state of the command.
type flatBench struct {
	dsn       string
	n         int
	only      string
	profile   string
	meter     meter
	namespace *namespace
	sites     []*site
}

// small is the backlog with which the others are compared.
const small = 100_000

// plan lays out the variants, the floor first.
func (b *flatBench) plan(backlog, sent, rounds int) {
	// The measurement ends when nine tenths of a backlog are published, because the last rows lie in few lanes.
	clocked := small * 9 / 10
	runs := max(1, (b.n+clocked/2)/clocked)
	all := []*site{
		{name: "base", waiting: small, drained: small, clocked: clocked, runs: runs, settings: "100,000 rows at most wait"},
		{
			name: "large", waiting: backlog, drained: b.n, clocked: b.n, runs: 1,
			settings: fmt.Sprintf("%d rows wait", backlog),
		},
		{
			name: "sent", waiting: small, drained: small, clocked: clocked, runs: runs, archive: sent,
			settings: fmt.Sprintf("as base, %d rows sent today", sent),
		},
		{
			name: "snapshot", waiting: b.n * 10 / 9, drained: b.n * 10 / 9, clocked: b.n, runs: 1, snapshot: true,
			settings: fmt.Sprintf("%d rows at most wait, a REPEATABLE READ transaction is held open", b.n*10/9),
		},
	}
	for _, s := range all {
		if b.only != "" && s.name != b.only && s.name != "base" {
			continue
		}
		s.waiting, s.archive = full(s.waiting), full(s.archive)
		s.drained = min(s.waiting, full(s.drained))
		s.clocked = min(s.clocked, s.drained)
		s.capacity = s.waiting + rounds*s.runs*full(s.drained)
		b.sites = append(b.sites, s)
	}
}

// full rounds up to one event more of each aggregate.
func full(rows int) int { return (rows + aggregates - 1) / aggregates * aggregates }

// withSites makes a schema for each site, and then runs fn.
func (b *flatBench) withSites(ctx context.Context, sites []*site, fn func() error) error {
	if len(sites) == 0 {
		return fn()
	}
	return withSchema(ctx, b.dsn, func(s *schema) error {
		done, err := sites[0].set(ctx, s)
		if err != nil {
			return err
		}
		defer done()
		return b.withSites(ctx, sites[1:], fn)
	})
}

// ratio compares a variant with the floor.
func (b *flatBench) ratio(name string) sample {
	for _, s := range b.sites {
		if s.name == name {
			return s.rates.over(b.sites[0].rates)
		}
	}
	return nil
}

// report prints the table and the line of figures.
func (b *flatBench) report() {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "variant\tevents/s\tratio\tcpu µs\trss MB\tprefill\tsettings")
	most := 0.0
	for _, s := range b.sites {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%.0f\t%s\t%s\n", s.name, s.rates.rate(), b.ratio(s.name).ratio(), s.cpu(), s.rss,
			s.prefill.Round(time.Second), s.settings)
		most = max(most, s.rss)
	}
	out.Flush()
	fmt.Printf("cpu: per event, of the projector + PostgreSQL + Pulsar; rss: of the projector's process, at most; %d events per figure\n", b.n)
	fmt.Printf("relay-flat ratio_10m=%.2f ratio_sent=%.2f ratio_snapshot=%.2f rss_mb=%.0f\n",
		b.ratio("large").median(), b.ratio("sent").median(), b.ratio("snapshot").median(), most)
}
