package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/oncebox/oncebox/internal/devenv"
)

// latency measures the time from a commit to the handler of a consumer, with writer, relay and consumer in processes of
// their own. The floor is a writer that sends each message itself after its COMMIT: two processes, no relay, and a
// message that is lost if the writer dies in between.
func latency(ctx context.Context, args []string) error {
	b := latencyBench{rates: ints{100, 1000}}
	flags := flag.NewFlagSet("latency", flag.ContinueOnError)
	rounds := flags.Int("rounds", 3, "how often each arrangement is measured")
	flags.IntVar(&b.seconds, "seconds", 10, "how long each is measured, after a warm-up")
	flags.Var(&b.rates, "rates", "events per second")
	flags.StringVar(&b.only, "only", "", "run this arrangement alone: floor, processes, polling or together")
	flags.StringVar(&b.profile, "cpuprofile", "", "have the relay's process write a CPU profile to this file")
	b.figures.flags(flags)
	isPart := flags.Bool("part", false, "be one process of an arrangement; the benchmark starts them by itself")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *isPart {
		return runPart(ctx, os.Stdin, os.Stdout)
	}
	return withPostgres(ctx, func(dsn string) error {
		b.dsn = dsn
		return b.run(ctx, *rounds)
	})
}

func (b *latencyBench) run(ctx context.Context, rounds int) (err error) {
	pulsar, err := devenv.Pulsar(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pulsar.Stop()) }()
	if b.namespace, err = newNamespace(ctx, pulsar); err != nil {
		return err
	}
	defer b.namespace.close(ctx)
	for round := range rounds {
		for _, rate := range b.rates {
			if err := b.round(ctx, rate); err != nil {
				return err
			}
			progressf("round %d of %d: %d events/s", round+1, rounds, rate)
		}
	}
	b.report()
	for _, rate := range b.rates {
		b.figures.add(fmt.Sprintf("Latency/rate=%d", rate), figure{"ms-over-floor", b.overFloor("processes", rate, tail)})
	}
	return b.figures.write()
}

// latencyBench is the state of the command.
type latencyBench struct {
	dsn       string
	namespace *namespace
	rates     ints
	seconds   int
	only      string
	profile   string
	figures   figures
	results   map[latencyRow]*delays
}

// latencyRow is a row of the table.
type latencyRow struct {
	arrangement string
	rate        int
}

// delays is what was measured of one row, in milliseconds, one figure per round.
type delays struct{ handed95, p50, p95, p99 sample }

// floorName is the arrangement that the others are compared with.
const floorName = "floor"

// arrangement is a division of the work among processes.
type arrangement struct {
	name, settings string
	parts          []part
}

func arrangements() []arrangement {
	return []arrangement{
		{floorName, "pgx by hand, then Send unbatched; a raw consumer; 2 processes", []part{
			{Floor: true, Consumer: true}, {Floor: true, API: true},
		}},
		{"processes", "api, projector and consumer in 3 processes", []part{{Consumer: true}, {Projector: true}, {API: true}}},
		{"polling", "the same with PollOnly", []part{
			{Consumer: true}, {Projector: true, PollOnly: true}, {API: true, PollOnly: true},
		}},
		{"together", "api, projector and consumer in one process", []part{{Consumer: true, Projector: true, API: true}}},
	}
}

func (b *latencyBench) round(ctx context.Context, rate int) error {
	for _, a := range arrangements() {
		if b.only != "" && b.only != a.name {
			continue
		}
		if err := b.measure(ctx, a, rate); err != nil {
			return fmt.Errorf("%s at %d events/s: %w", a.name, rate, err)
		}
	}
	return nil
}

// measure runs an arrangement in a schema and a topic of its own, and compares the committed events with the received ones.
func (b *latencyBench) measure(ctx context.Context, a arrangement, rate int) error {
	versions := max(1, rate*(b.seconds+int(latencyWarmUp.Seconds()))/latencyAccounts)
	return withSchema(ctx, b.dsn, func(s *schema) (err error) {
		if err := s.exec(ctx, fmt.Sprintf(createAccounts, latencyAccounts-1), storeAccounts, createFloor); err != nil {
			return err
		}
		if err := b.namespace.createTopic(ctx, accountType); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.namespace.removeTopic(ctx, accountType)) }()
		seen := &record{}
		if err := b.play(ctx, a, part{
			DSN: b.dsn, Schema: s.name, Pulsar: b.namespace.server.URL, Admin: b.namespace.server.AdminURL,
			Namespace: b.namespace.name, Rate: rate, Versions: versions,
		}, seen); err != nil {
			return err
		}
		if err := seen.verify(versions); err != nil {
			return err
		}
		b.add(latencyRow{a.name, rate}, seen)
		return nil
	})
}

func (b *latencyBench) add(c latencyRow, seen *record) {
	if b.results == nil {
		b.results = map[latencyRow]*delays{}
	}
	if b.results[c] == nil {
		b.results[c] = &delays{}
	}
	d := b.results[c]
	arrived := seen.delays(seen.Arrived)
	d.p50 = append(d.p50, quantile(arrived, 0.50))
	d.p95 = append(d.p95, quantile(arrived, 0.95))
	d.p99 = append(d.p99, quantile(arrived, 0.99))
	if len(seen.Handed) > 0 {
		d.handed95 = append(d.handed95, quantile(seen.delays(seen.Handed), 0.95))
	}
}

// play starts the processes one after the other, the writer last, and gathers what they saw.
func (b *latencyBench) play(ctx context.Context, a arrangement, common part, seen *record) (err error) {
	bound := time.Duration(b.seconds)*time.Second + latencyWarmUp + time.Minute
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("it was not over after %s", bound))
	defer cancel()
	var members []*member
	defer func() {
		for _, m := range members {
			err = errors.Join(err, m.end(seen))
		}
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err) // err of the processes follows from the cause
		}
	}()
	for _, p := range a.parts {
		if p.Projector {
			common.Profile = b.profile
		}
		m, err := launch(ctx, p.with(common))
		if err != nil {
			return err
		}
		members = append(members, m)
		common.Profile = ""
	}
	return members[len(members)-1].write(ctx, members[0])
}

// report prints the table and, if there is all for it, the line of figures.
func (b *latencyBench) report() {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "arrangement\tevents/s\tp50 ms\tp95 ms\tp99 ms\tp50 over floor\tp95 over floor\tp95 to relay\tsettings")
	for _, rate := range b.rates {
		for _, a := range arrangements() {
			d := b.results[latencyRow{a.name, rate}]
			if d == nil {
				continue
			}
			fmt.Fprintf(out, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", a.name, rate, d.p50.millis(), d.p95.millis(), d.p99.millis(),
				b.overFloor(a.name, rate, median).millis(), b.overFloor(a.name, rate, tail).millis(), d.handed95.millis(), a.settings)
		}
	}
	out.Flush()
	fmt.Println("to relay: from the commit to the projector's call of Publish; all from the return of the committing call")
	d, floor := b.results[latencyRow{"processes", 100}], b.results[latencyRow{floorName, 100}]
	if d != nil && floor != nil {
		fmt.Printf("latency p95_ms=%.1f floor_p95_ms=%.1f over_floor_p95_ms=%.1f\n",
			d.p95.median(), floor.p95.median(), b.overFloor("processes", 100, tail).median())
	}
}

func median(d *delays) sample { return d.p50 }

func tail(d *delays) sample { return d.p95 }

// overFloor subtracts round by round.
func (b *latencyBench) overFloor(name string, rate int, figure func(*delays) sample) sample {
	d, floor := b.results[latencyRow{name, rate}], b.results[latencyRow{floorName, rate}]
	if name == floorName || d == nil || floor == nil {
		return nil
	}
	out := make(sample, len(d.p95))
	for i := range out {
		out[i] = figure(d)[i] - figure(floor)[i]
	}
	return out
}

// millis formats the median with the range: 3.4 [3.1-4.0].
func (s sample) millis() string { return s.format("%.1f") }
