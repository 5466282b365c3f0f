package oncebox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/migrations"
)

// stallLimit is how long a part may make no progress, although there is work, before it is not ready.
const stallLimit = time.Minute

// Ready returns nil if this process can do its work, and otherwise what prevents it. It is for readiness
// probes. It checks that the database answers, has the tables and takes writes, and that the parts (all of
// them if none is named) run and make progress. A read-only database, or one with a full disk, takes no
// writes; this is checked at most every two seconds. A relay makes no progress if database or broker have
// failed it for a minute, or if the broker was down at its start and is still down. A consumer makes none
// if it is not subscribed, if a connection to the broker has been missing for a minute, or if messages have
// waited for a minute, here or at the broker, and none was settled. A paused consumer is ready.
//
// A process that serves requests should use [App.ReadyToWrite]: with Ready an outage of the broker would make it
// unavailable to its callers.
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
		case Cleaner: // a Cleaner that does not run only lets tables grow, a day later
		}
	}
	return errors.Join(errs...)
}

// ReadyToWrite returns nil if units of work can commit: the database answers, has the tables and takes writes. It is
// for the readiness probe of a process that serves requests: while the broker is down, their events wait in the outbox.
func (a *App) ReadyToWrite(ctx context.Context) error {
	// Only the list of applied files is compared; App.Run has compared the tables themselves at the start.
	err := migrations.Applied(ctx, a.db, &migrations.Config{Schema: a.cfg.Schema})
	switch {
	case pgerr.IsAway(err):
		return fmt.Errorf("oncebox: not ready: the database does not answer: %w", err)
	case err != nil:
		return fmt.Errorf("oncebox: not ready: %w", err)
	}
	return a.writable.check(ctx, a.db)
}

// undeclared returns the reason why relay and consumers have not begun, nil if they have.
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
