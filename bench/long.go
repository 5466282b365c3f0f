package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
)

// long measures how a transaction that has written an event and stays open affects the events of others:
// the time from their record to the receipt, the memory of the process, and the rate of the relay
// afterwards. The floors are the same figures from before.
func long(ctx context.Context, args []string) error {
	b := &longBench{}
	flags := flag.NewFlagSet("long", flag.ContinueOnError)
	flags.DurationVar(&b.open, "open", 10*time.Minute, "how long the transaction stays open")
	flags.DurationVar(&b.before, "before", 20*time.Second, "how long is measured without it before, and after")
	flags.IntVar(&b.rate, "rate", 5000, "events per second, in units of 10")
	flags.IntVar(&b.n, "n", 200_000, "events in the backlog of each rate, in full thousands")
	if err := parse(flags, args); err != nil {
		return err
	}
	return withServers(ctx, func(r *relayBench) error {
		b.relay = r
		return withSchema(ctx, r.dsn, func(s *schema) error { return b.run(ctx, s) })
	})
}

// longBench is the state of the command.
type longBench struct {
	open, before time.Duration
	rate, n      int
	relay        *relayBench

	db       *bun.DB
	store    *outbox.Store
	recorded atomic.Int64

	mu     sync.Mutex
	delays []float32 // of the present part, in milliseconds
	own    atomic.Int64
}

const (
	longTopic = "bench-long"
	longUnit  = 10
	ownType   = "long"

	longWriters = 4
)

func (b *longBench) run(ctx context.Context, s *schema) (err error) {
	if b.db, err = s.bun(pgx.QueryExecModeExec, 20); err != nil {
		return err
	}
	defer b.db.Close()
	b.store = outbox.NewStore(b.db, &outbox.Config{Schema: s.name})
	out, err := b.relay.open(ctx, backlog{topic: longTopic, versions: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.close(context.WithoutCancel(ctx))) }()
	before, err := b.drain(ctx, out)
	if err != nil {
		return err
	}
	debug.FreeOSMemory() // what the backlog has left is not what the relay has
	m := watchMemory(os.Getpid())
	parts, late, err := b.steady(ctx, out)
	most := m.stop()
	if err != nil {
		return err
	}
	after, err := b.drain(ctx, out)
	if err != nil {
		return err
	}
	for _, p := range parts {
		fmt.Printf("%-24s %8d events  p50 %6.1f ms  p95 %6.1f ms  p99 %6.1f ms  slowest %8.1f ms\n", p.name, p.n, p.p50, p.p95, p.p99, p.most)
	}
	fmt.Printf("its own event left %.1f ms after its commit\n", late)
	fmt.Printf("long before_p95_ms=%.1f open_p95_ms=%.1f open_most_ms=%.0f after_p95_ms=%.1f memory_mb=%.0f rate_before=%.0f rate_after=%.0f rate_ratio=%.2f\n",
		parts[0].p95, worst(parts[1:len(parts)-1]).p95, worst(parts[1:len(parts)-1]).most, parts[len(parts)-1].p95, most, before, after, after/before)
	return nil
}

// drain measures the rate of a backlog.
func (b *longBench) drain(ctx context.Context, out messaging.Publisher) (float64, error) {
	for first := 0; first < b.n; first += unitSize {
		if err := b.record(ctx, unitSize); err != nil {
			return 0, err
		}
	}
	took, err := b.relay.run(ctx, out, b.store, b.n)
	return float64(b.n) / took.Seconds(), err
}

// record stores events in one transaction.
func (b *longBench) record(ctx context.Context, n int) error {
	payload, err := newMoneyMoved(accountID(0)).encode()
	if err != nil {
		return err
	}
	unit := make([]event.Envelope, n)
	for i := range unit {
		n := b.recorded.Add(1)
		if unit[i], err = envelopeOf(longTopic, accountID(int(n%aggregates)), n, payload); err != nil {
			return err
		}
	}
	err = b.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error { return b.store.Flush(ctx, tx, unit) })
	if err == nil {
		b.store.Committed(ctx, unit)
	}
	return err
}

// longPart is what was measured in a part of the run.
type longPart struct {
	name                string
	n                   int
	p50, p95, p99, most float64
}

func worst(parts []longPart) (w longPart) {
	for _, p := range parts {
		w.p95, w.most = max(w.p95, p.p95), max(w.most, p.most)
	}
	return w
}

// steady records events at an even rate beside a relay: before, while the transaction is open, minute by minute, and after. late is how long after
// its commit the event of the transaction was confirmed.
func (b *longBench) steady(ctx context.Context, out messaging.Publisher) (parts []longPart, late float64, err error) {
	relay, err := projector.New(&timed{to: out, bench: b}, nil, b.store)
	if err != nil {
		return nil, 0, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	group, running := errgroup.WithContext(running)
	group.Go(func() error { return relay.Run(running) })
	for writer := range longWriters {
		group.Go(func() error { return b.write(running, writer) })
	}
	pause(running, 5*time.Second) // connections are opened
	b.take("")
	pause(running, b.before)
	parts = append(parts, b.take("before"))
	progressf("%+v", parts[0])
	tx, err := b.begin(running)
	if err != nil {
		return nil, 0, errors.Join(err, group.Wait())
	}
	for minute := time.Duration(0); minute < b.open && running.Err() == nil; minute += time.Minute {
		pause(running, min(time.Minute, b.open-minute))
		parts = append(parts, b.take(fmt.Sprintf("open, minute %d", int(minute.Minutes())+1)))
		progressf("%+v", parts[len(parts)-1])
	}
	if b.own.Load() != 0 {
		return nil, 0, fmt.Errorf("%w: an event left before it was committed", errWrong)
	}
	if err := tx.Commit(); err != nil {
		return nil, 0, err
	}
	b.store.Wake()
	committed := time.Now()
	pause(running, b.before)
	parts = append(parts, b.take("after"))
	stop()
	if err := group.Wait(); err != nil {
		return nil, 0, err
	}
	if b.own.Load() == 0 {
		return nil, 0, fmt.Errorf("%w: the event of the transaction has not left", errWrong)
	}
	return parts, float64(b.own.Load()-committed.UnixNano()) / 1e6, nil
}

// begin opens the transaction.
func (b *longBench) begin(ctx context.Context) (bun.Tx, error) {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return tx, err
	}
	if _, err := tx.ExecContext(ctx, "SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
		return tx, err
	}
	own, err := envelopeOf(longTopic, "", 0, []byte("{}"))
	if err != nil {
		return tx, err
	}
	own.Type, own.AggregateType = ownType, "" // it is in no order, or its lock would hold up others that share it
	return tx, b.store.Flush(ctx, tx, []event.Envelope{own})
}

// write records events, each unit when it is due.
func (b *longBench) write(ctx context.Context, writer int) error {
	begin := time.Now()
	for i := writer; ctx.Err() == nil; i += longWriters {
		pause(ctx, time.Until(begin.Add(time.Duration(i*longUnit)*time.Second/time.Duration(b.rate))))
		if err := b.record(context.WithoutCancel(ctx), longUnit); err != nil {
			return err
		}
	}
	return nil
}

// take ends a part.
func (b *longBench) take(name string) longPart {
	b.mu.Lock()
	delays := b.delays
	b.delays = nil
	b.mu.Unlock()
	all := make([]float64, len(delays))
	for i, d := range delays {
		all[i] = float64(d)
	}
	slices.Sort(all)
	return longPart{name, len(all), quantile(all, 0.5), quantile(all, 0.95), quantile(all, 0.99), quantile(all, 1)}
}

// timed notes how long after their record events were confirmed.
type timed struct {
	to    messaging.Publisher
	bench *longBench
}

// Publish passes msgs on.
func (t *timed) Publish(ctx context.Context, msgs []event.Envelope) error {
	err := t.to.Publish(ctx, msgs)
	if err != nil {
		return err
	}
	now := time.Now()
	t.bench.mu.Lock()
	defer t.bench.mu.Unlock()
	for i := range msgs {
		if msgs[i].Type == ownType {
			t.bench.own.Store(now.UnixNano())
			continue
		}
		t.bench.delays = append(t.bench.delays, float32(now.Sub(msgs[i].OccurredAt).Seconds()*1000))
	}
	return nil
}
