package oncebox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/migrations"
)

// Part is a part of an application that [App.Run] runs.
type Part int

const (
	// Relay publishes the outbox.
	Relay Part = iota + 1
	// Consumers receive messages and handle them, and handle parked messages. Without a broker the relay stores the messages.
	Consumers
	// Cleaner makes partitions for coming days, drops rows that are older than their retention, and reports
	// idempotency keys as metrics.
	Cleaner
)

// Run runs the parts, all of them if none is named, until ctx is done: then it finishes the batches and handlers in
// work, hands lanes and messages back, and returns nil. A service ends cleanly on SIGTERM with
//
//	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
//
// Run waits for a broker that is down ([messaging.ErrBrokerDown]). Units of work can commit meanwhile, and their events
// wait in the outbox. When the broker is back, Run makes the subscriptions, and only then starts relay and consumers,
// so that no subscription misses an event.
//
// Run also waits for a database that is down at the start, see config.Config.DatabaseWait.
//
// It returns an error at once when the tables are missing, a part is unknown, a pooler loses prepared statements
// although Config.Pooler is not set, the tables belong to another service ([*ForeignError]; a process without
// consumers does not look), or the broker refuses a subscription. It logs how the tables differ from what Migrate
// makes, each difference with the statement that mends it, and goes on; to refuse such tables, call
// [migrations.Verify] before.
func (a *App) Run(ctx context.Context, parts ...Part) error {
	if len(parts) == 0 {
		parts = []Part{Relay, Consumers, Cleaner}
	}
	for _, part := range parts {
		if part < Relay || part > Cleaner {
			return fmt.Errorf("oncebox: Run: Part(%d) does not exist: pass Relay, Consumers or Cleaner", part)
		}
	}
	defer quietlog.Flush(a.log)
	if err := a.waiting().Until(ctx, func() error { return a.prepare(ctx) }); err != nil && ctx.Err() == nil {
		return fmt.Errorf("oncebox: Run: %w", err)
	}
	if len(a.Inbox.Subscriptions()) > 0 {
		if err := a.Inbox.EnsurePartitions(ctx); err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "oncebox: partitions of table inbox could not be created; its rows go to the default partition until then", "error", err)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	afterwards := a.declareIn(ctx, group, parts)
	if slices.Contains(parts, Consumers) {
		afterwards(func() error { a.checkRetention(ctx); return nil })
		afterwards(func() error { checkUse(ctx, a); return nil })
	}
	group.Go(func() error { a.Inbox.State().WatchBrokers(ctx, a.subscriber()); return nil })
	group.Go(func() error { presenceOf(a, parts).Keep(ctx); return nil })
	// This goroutine keeps Run going when a part has nothing to do, consumers without a Consume for example.
	group.Go(func() error { <-ctx.Done(); return nil })
	for _, part := range parts {
		a.start(ctx, group, part, afterwards)
	}
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("oncebox: Run: %w", err)
	}
	return nil
}

// prepare checks the database before anything begins.
func (a *App) prepare(ctx context.Context) error {
	if err := a.verify(ctx); err != nil {
		return err
	}
	if len(a.Inbox.Subscriptions()) > 0 { // a process that only publishes may have a source of its own, such as "oncebox relay"
		if err := refuseForeign(ctx, a); err != nil {
			return err
		}
	}
	if !a.cfg.Outbox.Pooler || !a.cfg.Inbox.Pooler || !a.cfg.Idempotency.Pooler {
		if err := pgsql.CheckSession(ctx, a.db); err != nil {
			return err
		}
	}
	if a.broker == nil {
		if err := a.declare(ctx); err != nil {
			return fmt.Errorf("declare subscriptions: %w", err)
		}
	}
	return nil
}

// verify returns an error if tables are missing. Other differences are only logged: the tables served until the process
// was restarted, and a service that is down because an index is missing is worse than a slow one.
func (a *App) verify(ctx context.Context) error {
	err := migrations.Verify(ctx, a.db, &migrations.Config{Schema: a.cfg.Schema, Logger: a.log})
	found, differs := errors.AsType[*migrations.DifferenceError](err)
	if !differs {
		return err
	}
	for _, d := range found.Differences {
		a.log.ErrorContext(ctx, "oncebox: a table, index or function differs from the migrations; the field mend has the statement that repairs it",
			"schema", found.Schema, "object", d.Object, "problem", d.Problem, "mend", d.Mend)
	}
	return nil
}

// start runs one part in group; what needs the broker runs through afterwards, when the subscriptions exist.
func (a *App) start(ctx context.Context, group *errgroup.Group, part Part, afterwards func(func() error)) {
	switch part {
	case Relay:
		afterwards(func() error { return a.Projector.Run(ctx) })
	case Cleaner:
		group.Go(func() error { return a.clean(ctx) })
		group.Go(func() error { a.Idempotency.Observe(ctx, a.db); return nil })
	case Consumers:
		if len(a.Inbox.Subscriptions()) > 0 {
			group.Go(func() error { return a.Inbox.RunParked(ctx) })
			group.Go(func() error { return a.Inbox.RunReporting(ctx, a.subscriber(), a.declaration.err) })
		}
		afterwards(func() error { return a.Inbox.Receive(ctx, a.subscriber()) })
	}
}

// subscriber returns the broker, nil if there is none.
func (a *App) subscriber() messaging.Subscriber {
	if a.broker == nil {
		return nil
	}
	return a.broker
}

// cleanInterval is how often the cleaner runs.
const cleanInterval = time.Hour

// clean removes old rows of inbox and keys. An error is tried again at the next turn, because nothing depends on it
// soon. The relay cleans the outbox itself: its first settlement needs today's partition.
func (a *App) clean(ctx context.Context) error {
	ticker := time.NewTicker(cleanInterval)
	defer ticker.Stop()
	for {
		err := a.Inbox.Clean(ctx)
		_, purgeErr := a.Idempotency.Purge(ctx, a.db)
		if err := errors.Join(err, purgeErr); err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "oncebox: inbox entries or idempotency keys whose retention has ended could not all be deleted; the next try "+
				"is after the pause", "pause", cleanInterval, "error", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}
