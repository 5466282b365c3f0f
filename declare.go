package oncebox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
)

// declaration holds the error of the last attempt to make the subscriptions. Nil means that they exist, or
// that there was no attempt yet.
type declaration struct{ last atomic.Pointer[error] }

func (d *declaration) set(err error) { d.last.Store(&err) }

func (d *declaration) err() error {
	if last := d.last.Load(); last != nil {
		return *last
	}
	return nil
}

// declare makes the subscriptions of all consumers. It runs before anything is published, because a broker may delete
// messages of a topic without subscriptions at once.
func (a *App) declare(ctx context.Context) error {
	if a.broker == nil {
		return a.Inbox.SubscribeAll(ctx)
	}
	if err := a.Inbox.Identify(ctx); err != nil {
		return err
	}
	if err := a.waiting().Until(ctx, func() error { return a.introduce(ctx) }); err != nil {
		return err
	}
	subscriptions := a.Inbox.Subscriptions()
	if d, ok := a.broker.(messaging.Declarer); ok && len(subscriptions) > 0 {
		return a.Inbox.Explain(d.Declare(ctx, nil, subscriptions))
	}
	return nil
}

// introducer is a broker that can show operators which service publishes.
type introducer interface {
	Introduce(source, installation string)
}

// introduce gives the broker the names of the service and of its database, if it can show them.
func (a *App) introduce(ctx context.Context) error {
	b, can := a.broker.(introducer)
	if !can {
		return nil
	}
	id, err := a.Inbox.Installation(ctx)
	if err != nil {
		return err
	}
	b.Introduce(a.cfg.UoW.Source, id)
	return nil
}

// insistOnDeclaring tries until the broker has made the subscriptions, or refuses them for good. It logs once that it
// waits; the broker adapter logs the state of the connection.
func (a *App) insistOnDeclaring(ctx context.Context) error {
	if a.broker == nil {
		return nil // without a broker subscriptions are rows, which prepare has made
	}
	began := time.Now()
	for attempt := 1; ; attempt++ {
		err := a.declare(ctx)
		a.declaration.set(err)
		switch {
		case err == nil && attempt > 1:
			a.log.InfoContext(ctx, "oncebox: the broker answers and the subscriptions exist; relay and consumers start",
				"waited", time.Since(began).Round(time.Millisecond))
			return nil
		case err == nil || ctx.Err() != nil || !errors.Is(err, messaging.ErrBrokerDown):
			return err
		case attempt == 1:
			a.log.WarnContext(ctx, "oncebox: the broker does not answer; events are stored in the outbox, and relay and consumers start as soon "+
				"as it answers", "error", err)
		}
		if err := (retry.Policy{Delay: 200 * time.Millisecond, MaxDelay: 5 * time.Second}).Wait(ctx, attempt); err != nil {
			return err
		}
	}
}

// declareIn makes the subscriptions in a goroutine of group. It returns a function that starts another function in the
// group as soon as the subscriptions exist.
func (a *App) declareIn(ctx context.Context, group *errgroup.Group, parts []Part) (afterwards func(func() error)) {
	declared := make(chan struct{})
	group.Go(func() error {
		err := a.insistOnDeclaring(ctx)
		switch {
		case err == nil:
			close(declared)
			return nil
		case ctx.Err() != nil:
			return nil //nolint:nilerr // told to stop, which is no failure
		case slices.Contains(parts, Relay) || slices.Contains(parts, Consumers):
			return fmt.Errorf("declare subscriptions: %w", err)
		default:
			// A process that only writes events does not depend on the broker: the relay declares, too,
			// before it publishes.
			a.log.WarnContext(ctx, "oncebox: this process could not declare the subscriptions; a process that runs the relay declares them "+
				"before it publishes", "error", err)
			return nil
		}
	})
	return func(fn func() error) {
		group.Go(func() error {
			select {
			case <-declared:
				return fn()
			case <-ctx.Done():
				return nil
			}
		})
	}
}
