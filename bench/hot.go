package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// hot measures the time from the publication of messages to the commit of their handler, for all aggregates except one,
// whose handler fails twice for each message. Each round has one run with and one without failures.
func hot(ctx context.Context, args []string) error {
	var b hotBench
	flags := flag.NewFlagSet("hot", flag.ContinueOnError)
	flags.IntVar(&b.n, "n", 10_000, "messages, of 100 aggregates")
	flags.IntVar(&b.share, "share", 3, "percent of them that belong to the aggregate whose handler fails")
	flags.IntVar(&b.rate, "rate", 400, "messages published per second, well below what the consumer can do")
	rounds := flags.Int("rounds", 3, "how often each run is made")
	if err := parse(flags, args); err != nil {
		return err
	}
	return withPostgres(ctx, func(dsn string) (err error) {
		b.dsn = dsn
		server, err := devenv.Pulsar(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		if b.namespace, err = newNamespace(ctx, server); err != nil {
			return err
		}
		defer b.namespace.close(ctx)
		for round := range *rounds {
			calm, err := b.run(ctx, false)
			if err != nil {
				return err
			}
			failing, err := b.run(ctx, true)
			if err != nil {
				return err
			}
			b.calm, b.failing = append(b.calm, calm), append(b.failing, failing)
			progressf("round %d of %d: p95 %.1f ms, with failures %.1f ms", round+1, *rounds, calm, failing)
		}
		return b.report()
	})
}

// hotBench is the state of the command.
type hotBench struct {
	n, share, rate int
	dsn            string
	namespace      *namespace

	calm, failing         sample // p95 of each run, in milliseconds
	twice, disorder, lost int    // effects of all runs
	parked                int
}

const (
	hotAggregates = 100
	hotKey        = "hot"
	hotConsumer   = "hot-consumer"
	createEffects = `CREATE TABLE effects (nth bigserial PRIMARY KEY, key text NOT NULL, n int NOT NULL)`
)

var errHot = errors.New("not now")

// hotRun is one consumer with its topic.
type hotRun struct {
	*hotBench

	db      *bun.DB
	units   *uow.Manager
	adapter *pulsar.Broker
	topic   string
	fails   bool

	mu   sync.Mutex
	took []time.Duration // of the others
	left int
	done chan struct{} // closed when all have had their effects
}

// run makes one run and returns the 95th percentile in milliseconds.
func (b *hotBench) run(ctx context.Context, fails bool) (p95 float64, err error) {
	err = withSchema(ctx, b.dsn, func(s *schema) (err error) {
		if err := s.exec(ctx, createEffects); err != nil {
			return err
		}
		db, err := s.bun(pgx.QueryExecModeExec, 20)
		if err != nil {
			return err
		}
		defer db.Close()
		r := &hotRun{
			hotBench: b, db: db, units: uow.New(db, &uow.Config{Source: "bench"}), topic: "bench-" + s.name,
			fails: fails, left: b.n, done: make(chan struct{}),
		}
		subscription := messaging.Subscription{Topic: r.topic, Name: hotConsumer}
		r.adapter, err = pulsar.Connect(ctx, &pulsar.Config{
			URL: b.namespace.server.URL, AdminURL: b.namespace.server.AdminURL, Namespace: b.namespace.name,
			Topics: []string{r.topic}, Subscriptions: []messaging.Subscription{subscription},
		})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.adapter.Close(), b.namespace.removeTopic(ctx, r.topic)) }()
		if err := r.consume(ctx, subscription); err != nil {
			return err
		}
		slices.Sort(r.took)
		p95 = r.took[len(r.took)*95/100].Seconds() * 1000
		return r.count(ctx)
	})
	return p95, err
}

// consume runs a consumer with the defaults until all has had its effect.
func (r *hotRun) consume(ctx context.Context, subscription messaging.Subscription) error {
	quiet := slog.New(slog.DiscardHandler) // there are thousands of failures
	box := inbox.New(r.units, &inbox.Config{Telemetry: telemetry.Config{Logger: quiet}})
	receiver, err := r.adapter.Subscribe(ctx, subscription)
	if err != nil {
		return err
	}
	consumer := messaging.NewConsumer(receiver, box.Wrap(hotConsumer, messaging.HandlerFunc(r.handle)),
		&messaging.ConsumerConfig{Name: hotConsumer, Telemetry: telemetry.Config{Logger: quiet}})
	running, stop := context.WithCancel(ctx)
	defer stop()
	errs := make(chan error, 2)
	go func() { errs <- consumer.Run(running) }()
	go func() { errs <- box.RunParked(running) }()
	err = r.publish(ctx)
	if err == nil {
		select {
		case <-r.done:
		case <-time.After(10 * time.Minute):
			err = fmt.Errorf("%w: %d messages had no effect in 10 minutes", errWrong, r.left)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	stop()
	return errors.Join(err, <-errs, <-errs)
}

// publish keeps the rate.
func (r *hotRun) publish(ctx context.Context) error {
	const each = 20 * time.Millisecond
	some := max(1, r.rate/int(time.Second/each))
	tick := time.NewTicker(each)
	defer tick.Stop()
	versions := map[string]int{}
	for i := 0; i < r.n; i += some {
		var msgs []event.Envelope
		for j := i; j < min(i+some, r.n); j++ {
			key := hotKey
			if j%100 >= r.share {
				key = strconv.Itoa(1 + (j-j/100*r.share)%(hotAggregates-1))
			}
			versions[key]++
			msgs = append(msgs, r.message(key, versions[key]))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		now := time.Now()
		for j := range msgs {
			msgs[j].OccurredAt = now
		}
		if err := r.adapter.Publish(ctx, msgs); err != nil {
			return err
		}
	}
	return nil
}

func (r *hotRun) message(key string, version int) event.Envelope {
	return event.Envelope{
		ID: uuid.Must(uuid.NewV7()).String(), Type: "thing.happened", Source: "bench", TenantID: "t1", Topic: r.topic, ContentType: "text/plain",
		AggregateType: "thing", AggregateID: key, AggregateVersion: int64(version), RoutingKey: key, Payload: make([]byte, 512),
	}
}

// handle leaves one row.
func (r *hotRun) handle(ctx context.Context, m *messaging.Message) error {
	isHot := m.AggregateID == hotKey
	if _, err := r.units.DB(ctx).NewRaw("INSERT INTO effects (key, n) VALUES (?, ?)", m.AggregateID, m.AggregateVersion).Exec(ctx); err != nil {
		return err
	}
	if r.fails && isHot && m.Attempt <= 2 {
		return errHot
	}
	u := uow.MustFromContext(ctx)
	occurred := m.OccurredAt
	u.AfterCommit(func(context.Context) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !isHot {
			r.took = append(r.took, time.Since(occurred))
		}
		if r.left--; r.left == 0 {
			close(r.done)
		}
	})
	return nil
}

// count checks the effects and their order.
func (r *hotRun) count(ctx context.Context) error {
	var rows []struct {
		Key string
		N   int
	}
	if err := r.db.NewRaw("SELECT key, n FROM effects ORDER BY nth").Scan(ctx, &rows); err != nil {
		return fmt.Errorf("read the effects: %w", err)
	}
	last := map[string]int{}
	for _, row := range rows {
		switch {
		case row.N <= last[row.Key]:
			r.twice++
		case row.N != last[row.Key]+1:
			r.disorder++
		}
		last[row.Key] = max(last[row.Key], row.N)
	}
	r.lost += r.n - len(rows) + r.twice
	var parked int
	err := r.db.NewRaw("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM inbox_seq").Scan(ctx, &parked)
	r.parked += parked
	return err
}

func (b *hotBench) report() error {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "messages\tof the hot one %\tmessages/s\tp95 ms without failures\tp95 ms with them\tparked per run")
	fmt.Fprintf(out, "%d\t%d\t%d\t%s\t%s\t%d\n", b.n, b.share, b.rate, b.calm.format("%.1f"), b.failing.format("%.1f"), b.parked/len(b.calm))
	out.Flush()
	ratio := b.failing.over(b.calm)
	fmt.Printf("hot p95_ratio=%.2f effects_twice=%d disorder=%d\n", ratio.median(), b.twice, b.disorder)
	if b.twice+b.disorder+b.lost > 0 {
		return fmt.Errorf("%w: lost=%d", errWrong, b.lost)
	}
	return nil
}
