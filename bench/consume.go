package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/oncebox/oncebox/internal/devenv"
)

// consume measures how fast one process handles the messages waiting in a topic, each once. The handler updates one
// row, and one message in a hundred comes twice. The floors do the same with pgx and the broker's own client.
func consume(ctx context.Context, args []string) error {
	b := &consumeBench{}
	flags := flag.NewFlagSet("consume", flag.ContinueOnError)
	single := flags.Int("single", 40_000, "messages of a run that takes them one by one, in full thousands")
	batch := flags.Int("batch", 300_000, "messages of a run that takes them in batches, in full thousands")
	flags.IntVar(&b.rounds, "rounds", 5, "how often each variant is measured")
	flags.StringVar(&b.only, "only", "", "run these variants alone, for profiles: single,batch")
	b.profiles.flags(flags)
	b.figures.flags(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	b.variants = consumeVariants(max(1, *single/aggregates), max(1, *batch/aggregates))
	b.variants = named(b.variants, func(v *consumeVariant) string { return v.name }, b.only)
	if len(b.variants) == 0 {
		return fmt.Errorf("-only %s: there is no such variant", b.only)
	}
	return withPostgres(ctx, func(dsn string) error {
		b.dsn = dsn
		return b.run(ctx)
	})
}

// consumeBench is the state of the command.
type consumeBench struct {
	rounds   int
	only     string
	profiles profiles
	figures  figures
	variants []*consumeVariant

	dsn       string
	namespace *namespace
	meter     meter
}

// consumeVariant is a way to consume, and a row of the table.
type consumeVariant struct {
	name, settings string
	versions       int    // messages of each account
	inbox          string // the table that remembers messages; "" for a variant that does not
	floor          string // the comparable variant by hand
	run            func(ctx context.Context, c *consumption) error
	series
}

// The variants by hand.
const (
	singleFloor = "single-hand"
	batchFloor  = "batch-hand"
	modelFloor  = "model-hand"
	eachFloor   = "each-hand"
)

func consumeVariants(single, batch int) []*consumeVariant {
	return []*consumeVariant{
		{name: "receive", settings: rawSettings, versions: batch, run: receiveRaw},
		{name: singleFloor, settings: handSingleSettings, versions: single, inbox: handInbox, run: handSingle},
		{name: "single", settings: singleSettings, versions: single, inbox: ownInbox, floor: singleFloor, run: consumeOne(updateByHand)},
		{name: "single-raw", settings: rawBunSettings, versions: single, inbox: ownInbox, floor: singleFloor, run: consumeOne(updateRaw)},
		{name: modelFloor, settings: handModelSettings, versions: single, inbox: handInbox, run: handModel},
		{name: "single-model", settings: modelSettings, versions: single, inbox: ownInbox, floor: modelFloor, run: consumeOne(updateModel)},
		{name: batchFloor, settings: handBatchSettings, versions: batch, inbox: handInbox, run: handBatch(bulkUpdate)},
		{name: "batch", settings: batchSettings, versions: batch, inbox: ownInbox, floor: batchFloor, run: consumeMany(updateMany)},
		{name: eachFloor, settings: handEachSettings, versions: batch, inbox: handInbox, run: handBatch(updateEach)},
		{name: "batch-each", settings: batchEachSettings, versions: batch, inbox: ownInbox, floor: eachFloor, run: consumeMany(updateByHand)},
	}
}

func (b *consumeBench) run(ctx context.Context) (err error) {
	server, err := devenv.Pulsar(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	if b.namespace, err = newNamespace(ctx, server); err != nil {
		return err
	}
	defer b.namespace.close(ctx)
	b.meter = newMeter(b.dsn, server.URL)
	stop, err := b.profiles.start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for round := range b.rounds {
		var rates strings.Builder
		for _, v := range b.variants {
			if err := b.measure(ctx, v); err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			fmt.Fprintf(&rates, " %s %.0f", v.name, v.latest())
		}
		progressf("round %d of %d:%s messages/s", round+1, b.rounds, rates.String())
	}
	b.report()
	for _, v := range b.variants {
		if v.floor != "" {
			b.figures.addSeries("Consume/"+v.name, &v.series, b.rates(v.floor))
		}
	}
	return b.figures.write()
}

// measure does one run, with a schema and a topic of its own.
func (b *consumeBench) measure(ctx context.Context, v *consumeVariant) error {
	return withSchema(ctx, b.dsn, func(s *schema) (err error) {
		if err := s.exec(ctx, fmt.Sprintf(createAccounts, aggregates-1), createHandInbox, analyzeAccounts); err != nil {
			return err
		}
		c, err := openConsumption(ctx, b.namespace, s, backlog{topic: "bench-" + v.name, versions: v.versions})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.close(context.WithoutCancel(ctx))) }()
		n := c.ledger.all
		usage, allocs, err := c.watch(ctx, v, b.meter)
		if err != nil {
			return err
		}
		v.add(float64(n)/c.ledger.took().Seconds(), usage)
		v.allocs = append(v.allocs, allocs)
		return c.verify(ctx, v.inbox)
	})
}

func (b *consumeBench) rates(name string) sample {
	for _, v := range b.variants {
		if v.name == name {
			return v.series.rates
		}
	}
	return nil
}

// report prints the table and, unless the run was for a profile only, the line of figures.
func (b *consumeBench) report() {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "variant\tmessages/s\tratio\tcpu µs\tallocs\tsettings")
	for _, v := range b.variants {
		ratio := "-"
		if floor := b.rates(v.floor); floor != nil {
			ratio = v.series.rates.over(floor).ratio()
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%.0f\t%s\n", v.name, v.series.rates.rate(), ratio, v.cpu(), v.allocs.median(), v.settings)
	}
	out.Flush()
	fmt.Println("cpu: per message, of this program + PostgreSQL + Pulsar; allocs: objects per message, of this program")
	if b.only != "" {
		return
	}
	over := func(name, floor string) float64 { return b.rates(name).over(b.rates(floor)).median() }
	fmt.Printf("consume single_ratio=%.2f batch_ratio=%.2f batch_over_single=%.2f single_raw_ratio=%.2f single_model_ratio=%.2f batch_each_ratio=%.2f\n",
		over("single", singleFloor), over("batch", batchFloor), over("batch", "single"),
		over("single-raw", singleFloor), over("single-model", modelFloor), over("batch-each", eachFloor))
}
