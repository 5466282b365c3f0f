package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/outbox"
)

// brokerless measures how long a consumer without a broker waits for its events while another consumer of the topic
// is in trouble: some of its handlers take ten seconds, and some always fail. The floor is the same run without trouble.
func brokerless(ctx context.Context, args []string) error {
	var b brokerlessBench
	flags := flag.NewFlagSet("brokerless", flag.ContinueOnError)
	rounds := flags.Int("rounds", 3, "how often it is measured with trouble and without")
	flags.IntVar(&b.events, "n", 1000, "events")
	flags.IntVar(&b.rate, "rate", 100, "events per second")
	flags.BoolVar(&b.leased, "leased", false, "the consumer in trouble runs under leases and not in transactions")
	if err := parse(flags, args); err != nil {
		return err
	}
	return withPostgres(ctx, func(dsn string) error {
		for round := range *rounds {
			for _, trouble := range []bool{false, true} {
				err := withSchema(ctx, dsn, func(s *schema) error { return b.measure(ctx, s, trouble) })
				if err != nil {
					return err
				}
				progressf("round %d of %d: trouble %t", round+1, *rounds, trouble)
			}
		}
		b.report()
		return nil
	})
}

// brokerlessBench is the state of the command.
type brokerlessBench struct {
	events, rate int
	leased       bool

	calm, troubled brokerlessTimes
}

type brokerlessTimes struct{ p50, p95, slowest sample }

const (
	brokerlessTopic = "bench-brokerless"
	// One of 20 keys has handlers that take ten seconds, and one has handlers that fail, at the consumer in trouble.
	brokerlessKeys = 20
	slowHandler    = 10 * time.Second
)

var errInTrouble = errors.New("the handler fails each time")

// measure stores events at the given rate, and waits until the healthy consumer has handled all of them.
func (b *brokerlessBench) measure(ctx context.Context, s *schema, trouble bool) (err error) {
	db, err := s.bun(pgx.QueryExecModeExec, 30)
	if err != nil {
		return err
	}
	defer db.Close()
	var cfg config.Config
	cfg.Schema, cfg.UoW.Source, cfg.Inbox.DrainTimeout = s.name, source, -1 // slow handlers are cancelled at the end
	app, err := oncebox.New(db, nil, cfg)
	if err != nil {
		return err
	}
	other := &arrivals{at: map[string]time.Time{}, expected: b.events, all: make(chan struct{})}
	app.Consume(brokerlessTopic, "other", messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
		other.note(m.ID)
		return nil
	}))
	var opts []inbox.Option
	if b.leased {
		opts = append(opts, inbox.Leased())
	}
	app.Consume(brokerlessTopic, "troubled", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		switch {
		case !trouble:
			return nil
		case m.Delivery.OrderingKey == accountID(0):
			return wait(ctx, slowHandler)
		case m.Delivery.OrderingKey == accountID(1):
			return errInTrouble
		default:
			return nil
		}
	}), opts...)
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- app.Run(running) }()
	committed, err := b.write(ctx, db, app.Outbox)
	if err == nil {
		select {
		case <-other.all:
		case err = <-ended:
			ended <- err
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	stop()
	if err := errors.Join(err, <-ended, b.verify(ctx, db)); err != nil {
		return err
	}
	times := &b.calm
	if trouble {
		times = &b.troubled
	}
	times.add(other.delays(committed))
	return nil
}

// write stores the events, and returns when each was committed.
func (b *brokerlessBench) write(ctx context.Context, db *bun.DB, store *outbox.Store) (map[string]time.Time, error) {
	committed := map[string]time.Time{}
	ticker := time.NewTicker(time.Second / time.Duration(b.rate))
	defer ticker.Stop()
	for n := range b.events {
		var id string
		err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) (err error) {
			id, err = store.Add(ctx, tx, brokerlessTopic, []byte(`{}`), event.WithOrderingKey(accountID(n%brokerlessKeys)))
			return err
		})
		if err != nil {
			return nil, err
		}
		committed[id] = time.Now()
		store.Wake()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return committed, nil
}

// verify fails if an event has become a dead letter.
func (*brokerlessBench) verify(ctx context.Context, db *bun.DB) error {
	var dead int
	err := db.NewRaw("SELECT (SELECT count(*) FROM inbox_dead) + (SELECT count(*) FROM outbox_dead)").Scan(context.WithoutCancel(ctx), &dead)
	if err == nil && dead > 0 {
		err = fmt.Errorf("%d dead letters, and there should be none", dead)
	}
	return err
}

func (b *brokerlessBench) report() {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "the other consumer is\tp50 ms\tp95 ms\tslowest ms\tp95 over floor")
	fmt.Fprintf(out, "well (floor)\t%s\t%s\t%s\t\n", b.calm.p50.millis(), b.calm.p95.millis(), b.calm.slowest.millis())
	fmt.Fprintf(out, "in trouble\t%s\t%s\t%s\t%s\n", b.troubled.p50.millis(), b.troubled.p95.millis(), b.troubled.slowest.millis(),
		b.troubled.p95.over(b.calm.p95).millis())
	out.Flush()
	fmt.Printf("brokerless p95_ms=%.1f floor_p95_ms=%.1f\n", b.troubled.p95.median(), b.calm.p95.median())
}

func (t *brokerlessTimes) add(delays sample) {
	t.p50, t.p95 = append(t.p50, quantile(delays, 0.50)), append(t.p95, quantile(delays, 0.95))
	t.slowest = append(t.slowest, delays.most())
}

// arrivals has the time at which a consumer handled each event.
type arrivals struct {
	mu       sync.Mutex
	at       map[string]time.Time
	expected int
	all      chan struct{}
}

func (a *arrivals) note(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, again := a.at[id]; again {
		return
	}
	if a.at[id] = time.Now(); len(a.at) == a.expected {
		close(a.all)
	}
}

// delays returns the times from commit to handler in milliseconds, sorted.
func (a *arrivals) delays(committed map[string]time.Time) sample {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out sample
	for id, at := range committed {
		out = append(out, float64(a.at[id].Sub(at).Microseconds())/1000)
	}
	slices.Sort(out)
	return out
}
