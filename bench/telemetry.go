package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/outbox"
)

// telemetryCost measures what metrics and traces cost: the transactions of commit and the backlog of relay, without telemetry, with metrics that are
// collected each second, in a service that traces its requests by itself, and with all of that and the traces of oncebox, each of them sampled. They
// run right after each other in each round, each first in its turn. What the traces of oncebox cost is the last one compared with the one before.
func telemetryCost(ctx context.Context, args []string) error {
	b := &telemetryBench{}
	flags := flag.NewFlagSet("telemetry", flag.ContinueOnError)
	flags.IntVar(&b.rounds, "rounds", 9, "how often each is measured")
	flags.DurationVar(&b.length, "time", 3*time.Second, "how long each run of the transactions takes")
	n := flags.Int("n", 100_000, "events in the backlog, in full thousands")
	if err := parse(flags, args); err != nil {
		return err
	}
	return withServers(ctx, func(r *relayBench) error {
		r.versions = max(1, *n/aggregates)
		return b.run(ctx, r)
	})
}

// telemetryBench is the state of the command.
type telemetryBench struct {
	rounds int
	length time.Duration
}

// instrumented is a way to run, and its figures.
type instrumented struct {
	name          string
	metrics       bool
	requests      bool // the service has a span for each
	traces        bool
	commit, relay series
}

func (b *telemetryBench) run(ctx context.Context, r *relayBench) error {
	ways := []*instrumented{{name: "none"}, {name: "metrics", metrics: true}, {name: "requests", metrics: true, requests: true},
		{name: "traces", metrics: true, requests: true, traces: true}}
	for round := range b.rounds {
		for n := range ways {
			w := ways[(round+n)%len(ways)]
			if err := b.measure(ctx, r, w); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
		progressf("round %d of %d", round+1, b.rounds)
	}
	b.report(ways)
	return nil
}

func (b *telemetryBench) measure(ctx context.Context, r *relayBench, w *instrumented) (err error) {
	meters, service, done := w.start(ctx)
	var tracers trace.TracerProvider
	if w.traces {
		tracers = service
	}
	defer func() { err = errors.Join(err, done()) }()
	one := cell{k: 3, clients: 8, by: map[string]*series{w.name: &w.commit}}
	by := contender{name: w.name, events: outboxTable, open: func(_ context.Context, s *schema, clients int) (session, error) {
		one, err := openInstrumented(s, clients, meters, tracers)
		if err == nil && service != nil {
			one.tracer = service.Tracer(source)
		}
		return one, err
	}}
	if err := one.measure(ctx, r.dsn, by, b.length); err != nil {
		return err
	}
	r.cfg.Telemetry.MeterProvider, r.cfg.Telemetry.TracerProvider = meters, tracers
	return r.drain(ctx, "telemetry", outbox.DefaultRetention, &w.relay)
}

// start makes the providers that this way of running needs; the others are nil.
func (w *instrumented) start(ctx context.Context) (meters metric.MeterProvider, tracers trace.TracerProvider, done func() error) {
	done = func() error { return nil }
	if w.metrics {
		reader := sdkmetric.NewManualReader()
		meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
		ctx, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- collect(ctx, reader) }()
		done = func() error { stop(); return <-ended }
	}
	if w.requests {
		tracers = sdktrace.NewTracerProvider(sdktrace.WithBatcher(discard{}))
	}
	return meters, tracers, done
}

// collect collects the metrics each second, as a scrape does.
func collect(ctx context.Context, reader *sdkmetric.ManualReader) error {
	var all metricdata.ResourceMetrics
	for ctx.Err() == nil {
		pause(ctx, time.Second)
		if err := reader.Collect(context.WithoutCancel(ctx), &all); err != nil {
			return fmt.Errorf("collect metrics: %w", err)
		}
	}
	return nil
}

// discard is an exporter of spans that throws them away.
type discard struct{}

// ExportSpans does nothing.
func (discard) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }

// Shutdown does nothing.
func (discard) Shutdown(context.Context) error { return nil }

func (b *telemetryBench) report(ways []*instrumented) {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "telemetry\ttx/s\tratio\tcpu µs\tratio\tevents/s\tratio\tcpu µs\tratio")
	floor := ways[0]
	for _, w := range ways {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", w.name,
			w.commit.rates.rate(), w.commit.rates.over(floor.commit.rates).ratio(), w.commit.cpu(), w.commit.cpuOver(&floor.commit).ratio(),
			w.relay.rates.rate(), w.relay.rates.over(floor.relay.rates).ratio(), w.relay.cpu(), w.relay.cpuOver(&floor.relay).ratio())
	}
	_ = out.Flush()
	fmt.Println("cpu: per transaction of this program + PostgreSQL, and per event of this program + PostgreSQL + Pulsar")
	fmt.Print("telemetry")
	for n, w := range ways[1:] {
		to := floor
		if w.traces {
			to = ways[n]
		}
		commits, events := w.commit.rates.over(to.commit.rates), w.relay.rates.over(to.relay.rates)
		fmt.Printf(" commit_%s=%.3f cpu=%.3f relay_%s=%.3f cpu=%.3f", w.name, commits.median(), w.commit.cpuOver(&to.commit).median(),
			w.name, events.median(), w.relay.cpuOver(&to.relay).median())
	}
	fmt.Println()
}
