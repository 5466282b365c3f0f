package oncebox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/migrations"
)

// stallLimit is how long a part may get nothing done, although there is work, before it is not ready.
const stallLimit = time.Minute

// Ready returns nil if this process can do its work, and else what stands in the way. It is for readiness probes: the
// database answers, has the tables and takes writes, and the parts, all of them if none is named, run and get on. A database
// that is read-only or whose disk is full takes no writes; it is asked every two seconds at most. A relay does not get on when
// database or broker have failed it for a minute, or the broker was away at the start and has not come yet; a consumer when it is
// not subscribed, when a connection to the broker has been missing for a minute, or when there have been messages for a minute, in this
// process or waiting at the broker, and none was settled. A consumer that is paused is ready.
//
// A process that takes requests asks [App.ReadyToWrite]: with Ready an outage of the broker would take it away from its callers.
func (a *App) Ready(ctx context.Context, parts ...Part) error {
	if len(parts) == 0 {
		parts = []Part{Relay, Consumers, Cleaner}
	}
	if err := a.ReadyToWrite(ctx); err != nil {
		return err
	}
	var errs []error
	for _, part := range parts {
		switch part {
		case Relay:
			if p := a.Projector.Progress(); p.Stalled(stallLimit) {
				errs = append(errs, errors.Join(fmt.Errorf("oncebox: the relay makes no progress (running: %t, last progress: %s); its log lines "+
					"say why", p.Running, ago(p.Last)),
					a.undeclared()))
			}
		case Consumers:
			errs = append(errs, a.consumersReady())
		case Cleaner: // whether it runs or not matters to the size of tables, a day later
		}
	}
	return errors.Join(errs...)
}

// ReadyToWrite returns nil if units of work can commit: the database answers, has the tables and takes writes. It is for the
// readiness probe of a process that takes requests: what they store waits in the outbox while the broker is away.
func (a *App) ReadyToWrite(ctx context.Context) error {
	// Run has logged how the tables differ.
	err := migrations.Applied(ctx, a.db, &migrations.Config{Schema: a.cfg.Schema})
	switch {
	case pgerr.IsAway(err):
		return fmt.Errorf("oncebox: not ready: the database does not answer: %w", err)
	case err != nil:
		return fmt.Errorf("oncebox: not ready: %w", err)
	}
	return a.writable.check(ctx, a.db)
}

// undeclared is why relay and consumers have not begun.
func (a *App) undeclared() error {
	if err := a.declaration.err(); err != nil {
		return fmt.Errorf("oncebox: relay and consumers wait until the subscriptions of the broker are declared: %w", err)
	}
	return nil
}

func (a *App) consumersReady() error {
	if a.broker == nil {
		return nil
	}
	if err := a.Inbox.Health(stallLimit); err != nil {
		return fmt.Errorf("oncebox: not ready: %w", errors.Join(err, a.undeclared()))
	}
	return nil
}

func ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return time.Since(t).Round(time.Second).String() + " ago"
}
