package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox"
)

// brokers measures the relay to each broker. The floor of the rate is that broker's own client, which publishes the same messages from memory
// without waiting between them. The floor of the delay is a program that publishes each message itself after its COMMIT.
func brokers(ctx context.Context, args []string) error {
	b := brokersBench{results: map[string]*brokerResult{}}
	flags := flag.NewFlagSet("brokers", flag.ContinueOnError)
	n := flags.Int("n", 50_000, "events in the backlog, in full thousands")
	rounds := flags.Int("rounds", 3, "how often each broker is measured")
	flags.IntVar(&b.seconds, "seconds", 10, "how long delays are measured, after a warm-up")
	flags.StringVar(&b.profiles, "profiles", "", "write CPU profiles of the first round into this folder: NAME-floor.pprof and NAME-relay.pprof")
	only := flags.String("only", "", "measure these brokers alone, separated by commas: "+strings.Join(brokerNames(), ","))
	if err := parse(flags, args); err != nil {
		return err
	}
	b.versions = max(1, *n/aggregates)
	return withPostgres(ctx, func(dsn string) error {
		b.dsn = dsn
		if err := b.ceiling(ctx, *rounds); err != nil {
			return fmt.Errorf("%s: %w", noBroker, err)
		}
		for _, name := range brokerNames() {
			if *only != "" && !slices.Contains(strings.Split(*only, ","), name) {
				continue
			}
			if err := b.broker(ctx, name, *rounds); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		b.report()
		return nil
	})
}

// brokersBench is the state of the command.
type brokersBench struct {
	dsn      string
	versions int // of each aggregate
	seconds  int
	profiles string
	sample   []event.Envelope // the messages of the floor
	nothing  series           // the relay to a publisher that does nothing
	results  map[string]*brokerResult
}

// brokerResult is what was measured of one broker, one figure per round.
type brokerResult struct {
	server, settings string
	raw, relay       series
	floor95, relay95 sample // milliseconds
}

// ceiling measures the relay to a publisher that does nothing. It cannot feed a broker faster on this machine, whatever the broker takes.
func (b *brokersBench) ceiling(ctx context.Context, rounds int) error {
	r := relayBench{dsn: b.dsn, versions: b.versions, meter: newMeter(b.dsn), open: openNone, profile: b.profile(noBroker, "relay")}
	for round := range rounds {
		if err := r.drain(ctx, "nothing", outbox.DefaultRetention, &r.archive); err != nil {
			return err
		}
		r.profile = ""
		progressf("%s, round %d of %d: relay %.0f events/s", noBroker, round+1, rounds, r.archive.latest())
	}
	b.nothing = r.archive
	return nil
}

// profile returns the file for a profile, "" if none is asked for.
func (b *brokersBench) profile(broker, of string) string {
	if b.profiles == "" {
		return ""
	}
	return filepath.Join(b.profiles, broker+"-"+of+".pprof")
}

// broker measures one broker: its server is started, and stopped at the end.
func (b *brokersBench) broker(ctx context.Context, name string, rounds int) (err error) {
	site, err := openSite(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, site.close()) }()
	result := &brokerResult{server: site.server(), settings: site.settings()}
	b.results[name] = result
	if err := b.rehearse(ctx, site); err != nil {
		return fmt.Errorf("rehearsal: %w", err)
	}
	for round := range rounds {
		if err := b.round(ctx, name, site, result); err != nil {
			return err
		}
		progressf("%s, round %d of %d: floor %.0f, relay %.0f events/s; p95 floor %.1f, relay %.1f ms", name, round+1, rounds,
			result.raw.latest(), result.relay.latest(), result.floor95[round], result.relay95[round])
	}
	return nil
}

// rehearse relays a small backlog, which warms the broker up, and keeps its messages for the floor.
func (b *brokersBench) rehearse(ctx context.Context, site brokerSite) error {
	small := relayBench{dsn: b.dsn, versions: rehearsal, meter: newMeter(b.dsn), open: func(ctx context.Context, work backlog) (outlet, error) {
		out, err := openAdapted(ctx, site, work)
		if out != nil {
			out.keep = &b.sample
		}
		return out, err
	}}
	b.sample = nil
	return small.drain(ctx, "rehearsal-"+rand.Text()[:8], outbox.DefaultRetention, &small.archive)
}

func (b *brokersBench) round(ctx context.Context, name string, site brokerSite, result *brokerResult) error {
	var floor, relay string
	if len(result.raw.rates) == 0 {
		floor, relay = b.profile(name, "floor"), b.profile(name, "relay")
	}
	if err := b.flood(ctx, site, &result.raw, floor); err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	r := relayBench{dsn: b.dsn, versions: b.versions, meter: newMeter(b.dsn), profile: relay, open: func(ctx context.Context, work backlog) (outlet, error) {
		return openAdapted(ctx, site, work)
	}}
	if err := r.drain(ctx, "brokers-"+rand.Text()[:8], outbox.DefaultRetention, &r.archive); err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	result.relay.add(r.archive.rates[0], r.archive.usage[0])
	for _, m := range []struct {
		to  *sample
		run func(context.Context, brokerSite, *record) error
	}{{&result.floor95, b.sendByHand}, {&result.relay95, b.sendByRelay}} {
		seen := &record{}
		if err := m.run(ctx, site, seen); err != nil {
			return fmt.Errorf("delay: %w", err)
		}
		*m.to = append(*m.to, quantile(seen.delays(seen.Handed), 0.95))
	}
	return nil
}

// flood publishes as many messages as the backlog has, by the client alone.
func (b *brokersBench) flood(ctx context.Context, site brokerSite, to *series, file string) (err error) {
	const topic = "bench-raw"
	h, err := site.byHand(ctx, topic, b.sample)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	stop, err := (&profiles{cpu: file}).start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	meter, n := newMeter(b.dsn), b.versions*aggregates
	cpu, began := meter.read(), time.Now()
	if err := h.flood(ctx, n); err != nil {
		return err
	}
	to.add(float64(n)/time.Since(began).Seconds(), meter.read().since(cpu, float64(n)))
	return nil
}

// report prints the table and the line of figures.
func (b *brokersBench) report() {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "broker\tserver\tfloor events/s\trelay events/s\tratio\tp95 ms by hand\tp95 ms relay\tp95 over floor\tfloor's settings")
	fmt.Fprintf(out, "%s\t-\t-\t%s\t-\t-\t-\t-\ta publisher that does nothing\n", noBroker, b.nothing.rates.rate())
	var line strings.Builder
	fmt.Fprintf(&line, "brokers %s_events_per_s=%.0f", noBroker, b.nothing.rates.median())
	for _, name := range brokerNames() {
		r := b.results[name]
		if r == nil {
			continue
		}
		ratio := r.relay.rates.over(r.raw.rates)
		over := make(sample, len(r.relay95))
		for i := range over {
			over[i] = r.relay95[i] - r.floor95[i]
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, r.server, r.raw.rates.rate(), r.relay.rates.rate(), ratio.ratio(),
			r.floor95.millis(), r.relay95.millis(), over.millis(), r.settings)
		fmt.Fprintf(&line, " %s_ratio=%.2f %s_over_floor_p95_ms=%.1f", name, ratio.median(), name, over.median())
	}
	out.Flush()
	fmt.Println("p95: from the return of the commit to the broker's receipt, at 100 events per second")
	fmt.Println(line.String())
}
