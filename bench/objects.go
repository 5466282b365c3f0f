package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"text/tabwriter"
	"time"
)

// objects counts the objects that a unit, a message and a request make on the heap. The numbers hardly depend on the machine, so each has a bound. A
// number above its bound ends the program with exit code 1. make nightly runs it.
func objects(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("objects", flag.ContinueOnError)
	rounds := flags.Int("rounds", 3, "how often each number is counted")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *rounds < 1 {
		return fmt.Errorf("-rounds %d: at least one round is needed, or no bound is checked", *rounds)
	}
	return withPostgres(ctx, func(dsn string) error {
		o := &objectsBench{dsn: dsn, rounds: *rounds}
		for _, count := range []func(context.Context) error{o.commit, o.consume, o.http} {
			if err := count(ctx); err != nil {
				return err
			}
		}
		return o.report()
	})
}

// The bounds are a few objects above the latest numbers, because a connection that is opened or a batch that the broker's client cuts differs from run
// to run. Lower them with the numbers.
const (
	boundFirst   = 107
	boundFurther = 13
	boundMessage = 186
	boundRequest = 272
)

// objectsBench is the state of the command.
type objectsBench struct {
	dsn    string
	rounds int
	counts []objectCount
}

// objectCount is a row of the table.
type objectCount struct {
	what  string
	n     sample
	bound float64
}

// Each run has many clients and takes a while, so that the loops in the background, which make some objects each second, count little.
const (
	objectsClients = 16
	objectsTime    = 2 * time.Second
)

func (o *objectsBench) commit(ctx context.Context) error {
	const more = 9
	one, many := cell{k: 1, clients: objectsClients, by: map[string]*series{}}, cell{k: 1 + more, clients: objectsClients, by: map[string]*series{}}
	by := contenders()[0]
	for range o.rounds {
		for _, c := range []cell{one, many} {
			if err := c.measure(ctx, o.dsn, by, objectsTime); err != nil {
				return err
			}
		}
	}
	first, all := one.by[by.name].allocs, many.by[by.name].allocs
	var further sample
	for i := range first {
		further = append(further, (all[i]-first[i])/more)
	}
	o.counts = append(o.counts, objectCount{"a unit with one event", first, boundFirst},
		objectCount{"each further event of the same aggregate", further, boundFurther})
	return nil
}

func (o *objectsBench) consume(ctx context.Context) error {
	b := &consumeBench{dsn: o.dsn, rounds: o.rounds, only: "single", variants: consumeVariants(10, 10)}
	b.variants = named(b.variants, func(v *consumeVariant) string { return v.name }, b.only)
	if err := b.run(ctx); err != nil {
		return err
	}
	o.counts = append(o.counts, objectCount{"a message of Pulsar, with its handler's prepared statement", b.variants[0].allocs, boundMessage})
	return nil
}

func (o *objectsBench) http(ctx context.Context) error {
	b := &httpBench{dsn: o.dsn, rounds: o.rounds, clients: objectsClients, length: objectsTime, only: "fresh"}
	b.variants = named(httpVariants(), func(v *httpVariant) string { return v.name }, b.only)
	if err := b.run(ctx); err != nil {
		return err
	}
	o.counts = append(o.counts, objectCount{"a request with a fresh key, its client and its handler's statement", b.variants[0].allocs, boundRequest})
	return nil
}

func (o *objectsBench) report() (err error) {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "objects\tbound\tof")
	for _, c := range o.counts {
		fmt.Fprintf(out, "%.0f\t%.0f\t%s\n", c.n.median(), c.bound, c.what)
		if c.n.median() > c.bound {
			err = errors.Join(err, fmt.Errorf("%s: %.1f objects, more than %.0f: find them with -memprofile of commit, consume or http: %w",
				c.what, c.n.median(), c.bound, errWrong))
		}
	}
	out.Flush()
	return err
}
