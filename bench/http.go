package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

// httpKeys measures a service with one route, whose handler updates one row, over loopback sockets: with only the
// handler, with a check of the key written by hand in the handler's transaction, and with httpmw.Idempotency.
func httpKeys(ctx context.Context, args []string) error {
	b := &httpBench{}
	flags := flag.NewFlagSet("http", flag.ContinueOnError)
	flags.IntVar(&b.rounds, "rounds", 5, "how often each variant is measured")
	flags.DurationVar(&b.length, "time", 2*time.Second, "how long each run takes")
	flags.IntVar(&b.clients, "clients", 32, "clients at once, each with a connection of its own")
	flags.StringVar(&b.only, "only", "", "run these variants alone, for profiles: fresh,replay")
	b.profiles.flags(flags)
	b.figures.flags(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	b.variants = httpVariants()
	b.variants = named(b.variants, func(v *httpVariant) string { return v.name }, b.only)
	if len(b.variants) == 0 {
		return fmt.Errorf("-only %s: there is no such variant", b.only)
	}
	return withPostgres(ctx, func(dsn string) error {
		b.dsn = dsn
		return b.run(ctx)
	})
}

// httpBench is the state of the command.
type httpBench struct {
	rounds, clients int
	length          time.Duration
	only            string
	profiles        profiles
	figures         figures
	variants        []*httpVariant
	dsn             string
}

// httpVariant is a service and what is asked of it, and a row of the table.
type httpVariant struct {
	name, settings string
	serve          func(ctx context.Context, s *schema, conns int) (*service, error)
	keys           keys
	series
}

const (
	bareSettings = "chi and pgx: UPDATE ... RETURNING in a transaction of its own, the key is not looked at"
	handSettings = "chi and pgx, prepared: BEGIN, INSERT of the key ON CONFLICT DO NOTHING, UPDATE, UPDATE of the key with the answer, COMMIT"
	bestSettings = "the same, but BEGIN leaves with the INSERT, and COMMIT with the last UPDATE"
	coldSettings = "the same, of a process that has not seen these keys: its Store is a new one after each pass"
	waveSettings = "the same, but all clients go through the same fresh keys, and ask again at once after a 409; 409s are counted"
	ownSettings  = "chi and httpmw.Idempotency with its defaults; the handler is the same statement, prepared, in the unit's transaction"
)

func httpVariants() []*httpVariant {
	return []*httpVariant{
		{name: "bare", settings: bareSettings, serve: serveBare, keys: fresh},
		{name: "hand", settings: handSettings, serve: serveByHand, keys: fresh},
		{name: "hand-batched", settings: bestSettings, serve: serveBatched, keys: fresh},
		{name: "fresh", settings: ownSettings, serve: serveOncebox, keys: fresh},
		{name: "mixed", settings: "the same, every tenth request is a retry", serve: serveOncebox, keys: mixed},
		{name: "replay", settings: "the same, all requests are retries, of 2,000 keys", serve: serveOncebox, keys: replayed},
		{name: "replay-cold", settings: coldSettings, serve: serveForgetful, keys: replayed},
		{name: "hot", settings: "the same, all requests have one key", serve: serveOncebox, keys: oneKey},
		{name: "hot-fresh", settings: waveSettings, serve: serveOncebox, keys: shared},
		{name: "hot-wait", settings: "the same with IdempotencyConfig.Wait, so there are no 409s", serve: serveWaiting, keys: shared},
	}
}

func (b *httpBench) run(ctx context.Context) error {
	stop, err := b.profiles.start()
	if err != nil {
		return err
	}
	for round := range b.rounds {
		var line strings.Builder
		for _, v := range b.variants {
			if err := b.measure(ctx, v); err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			fmt.Fprintf(&line, " %s %.0f", v.name, v.latest())
		}
		progressf("round %d of %d:%s requests/s", round+1, b.rounds, line.String())
	}
	if err := stop(); err != nil {
		return err
	}
	b.report()
	rates := b.rates()
	for _, v := range b.variants {
		switch v.name {
		case "bare", "hand", "hand-batched":
		case "fresh":
			b.figures.addSeries("HTTP/fresh/floor=hand-batched", &v.series, rates["hand-batched"])
			fallthrough
		default:
			b.figures.addSeries("HTTP/"+v.name, &v.series, rates["hand"])
		}
	}
	return b.figures.write()
}

func (b *httpBench) measure(ctx context.Context, v *httpVariant) error {
	return withSchema(ctx, b.dsn, func(s *schema) error {
		if err := s.exec(ctx, fmt.Sprintf(createAccounts, aggregates-1), createHandKeys); err != nil {
			return err
		}
		site, err := v.serve(ctx, s, b.clients)
		if err != nil {
			return err
		}
		defer site.close()
		runtime.GC() // no run pays for the garbage of another
		return labelled(ctx, v.name, func(ctx context.Context) error {
			l := &httpLoad{site: site, keys: v.keys, clients: b.clients, length: b.length}
			if err := l.run(ctx, newMeter(b.dsn), &v.series); err != nil {
				return err
			}
			return l.verify(ctx, s)
		})
	})
}

// rates returns the rates by the name of the variant.
func (b *httpBench) rates() map[string]sample {
	all := map[string]sample{}
	for _, v := range b.variants {
		all[v.name] = v.rates
	}
	return all
}

// report prints the table and, unless the run was for a profile only, the line of figures.
func (b *httpBench) report() {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "variant\trequests/s\tcpu µs\tallocs\tsettings")
	for _, v := range b.variants {
		fmt.Fprintf(out, "%s\t%s\t%s\t%.0f\t%s\n", v.name, v.rates.rate(), v.cpu(), v.allocs.median(), v.settings)
	}
	out.Flush()
	fmt.Println("cpu: per request, of this program, its clients included, + PostgreSQL; allocs: objects per request, of this program")
	if b.only != "" {
		return
	}
	rates := b.rates()
	over := func(name, floor string) string { return rates[name].over(rates[floor]).ratio() }
	fmt.Printf("http fresh_ratio=%s hand_over_bare=%s mixed_over_fresh=%s replay_over_fresh=%s hot_over_fresh=%s\n",
		over("fresh", "hand"), over("hand", "bare"), over("mixed", "fresh"), over("replay", "fresh"), over("hot", "fresh"))
	fmt.Printf("http fresh_over_hand_batched=%s hand_batched_over_hand=%s replay_cold_over_fresh=%s hot_fresh_over_fresh=%s hot_wait_over_fresh=%s\n",
		over("fresh", "hand-batched"), over("hand-batched", "hand"), over("replay-cold", "fresh"), over("hot-fresh", "fresh"), over("hot-wait", "fresh"))
}
