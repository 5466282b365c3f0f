package oncetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	inboxstate "github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/messaging"
)

const (
	// limit is how long a Drain may take. Only a defect takes that long, for example a handler that never returns.
	limit = 5 * time.Minute
	// look is the longest pause between two looks at the tables.
	look = 5 * time.Millisecond
)

var (
	// errStopped is the cause with which a Drain ends its consumers.
	errStopped = errors.New("drained")

	errLimit = fmt.Errorf("not done after %s: does a handler not return? Run the test with -timeout=1m, which prints where each goroutine waits", limit)
)

// Drain publishes and handles until nothing is left. It fails the test if a handler failed, or the broker refused an event, since the last
// Drain. It gives up after five minutes, which is for handlers that do not return; no working service comes near.
//
// Nothing is left when every event that is due was published or refused, and every consumer has handled, parked or given up
// all that the broker has for it, and has tried all parked messages that are due. That includes the events that the handlers emitted.
// Drain leaves delayed events, and retries whose pause is not over: see [Kit.Advance]. It also leaves what waits behind a dead event or
// message.
//
// After a crash of the service Drain starts it anew, see [Kit.CrashAt].
func (k *Kit) Drain() {
	k.t.Helper()
	if failures := k.DrainFailing(); len(failures) > 0 {
		k.t.Fatalf("oncetest: Drain: %d failed:%s\nMend what the errors say. Where a failure is meant, call DrainFailing, which returns it. "+
			"What waits for its next try runs in the Drain after Advance(%s)", len(failures), list(failures), pause)
	}
}

// DrainFailing is [Kit.Drain] for a test in which failures are expected. It returns the failures since the
// last Drain, in any order.
func (k *Kit) DrainFailing() []Failure {
	k.t.Helper()
	ctx, cancel := context.WithTimeoutCause(k.t.Context(), limit, errLimit)
	defer cancel()
	if err := k.drain(ctx); err != nil {
		k.t.Fatalf("oncetest: Drain: %v", err)
	}
	failures, err := k.failures(k.t.Context())
	if err != nil {
		k.t.Fatalf("oncetest: Drain: %v", err)
	}
	return failures
}

// drain works until nothing is left. After a crash it continues with a new process of the service.
func (k *Kit) drain(ctx context.Context) error {
	for {
		if k.process.isDead() {
			if err := k.restart(ctx); err != nil {
				return err
			}
		}
		if err := k.work(ctx); !k.process.isDead() {
			return err
		}
	}
}

// work runs one process of the service until nothing is left or the process dies.
func (k *Kit) work(ctx context.Context) error {
	// App.Run does this if there is no broker. With a broker nobody reads these subscriptions.
	if err := k.App.Inbox.SubscribeAll(ctx); err != nil {
		return err
	}
	group, running := errgroup.WithContext(ctx)
	running, stop := context.WithCancel(running)
	group.Go(func() error { return k.App.Inbox.Receive(running, k.process.client) })
	group.Go(func() error { return k.App.Inbox.RunParked(running) })
	group.Go(func() error {
		defer stop()
		if err := k.untilNothingIsLeft(running); err != nil {
			return err
		}
		return errStopped
	})
	group.Go(func() error {
		select {
		case <-k.process.died:
			stop()
		case <-running.Done():
		}
		return nil
	})
	err := group.Wait()
	stop()
	if errors.Is(err, errStopped) {
		return nil
	}
	return err
}

// untilNothingIsLeft lets the relay and the consumers work in turn. It ends after a turn of the relay that changes
// nothing while the consumers have nothing to do.
func (k *Kit) untilNothingIsLeft(ctx context.Context) error {
	for {
		before, err := k.state(ctx)
		if err != nil {
			return err
		}
		// If the broker is away, or has not confirmed what it stored, the relay tries again in the next turn.
		err = k.App.Projector.RunOnce(ctx)
		if err != nil && !errors.Is(err, messaging.ErrBrokerDown) && !errors.Is(err, messaging.ErrUnknown) {
			return fmt.Errorf("relay: %w", err)
		}
		if err := k.settled(ctx); err != nil {
			return err
		}
		after, err := k.state(ctx)
		if err != nil || after == before {
			return err
		}
	}
}

// settled waits until the consumers have nothing to do.
func (k *Kit) settled(ctx context.Context) error {
	subscriptions := len(k.App.Inbox.Subscriptions())
	for {
		messages, receiving, err := k.process.client.waiting(ctx, subscriptions)
		if err != nil {
			return err
		}
		due := false
		if messages == 0 && receiving {
			// This is asked last, because a message is parked before it is acknowledged.
			if due, err = k.parkedAreDue(ctx); err != nil || !due {
				return err
			}
		}
		select {
		case <-k.broker.moved:
		case <-time.After(look):
		case <-ctx.Done():
			return fmt.Errorf("%d messages are not settled, all consumers receive: %t, parked messages are due: %t: %w",
				messages, receiving, due, context.Cause(ctx))
		}
	}
}

// state changes with everything that relay and consumers do. Only a publication that the broker has neither stored nor
// refused leaves it unchanged.
type state struct {
	recorded, waiting, held, refusals, dead int64
	calls                                   int
}

const askState = `
SELECT (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM outbox_seq), (SELECT count(*) FROM outbox),
	(SELECT count(*) FROM outbox_held), (SELECT coalesce(sum(retry_count), 0) FROM outbox_held), (SELECT count(*) FROM outbox_dead)`

func (k *Kit) state(ctx context.Context) (s state, err error) {
	s.calls = k.broker.calls()
	err = k.DB.QueryRowContext(ctx, askState).Scan(&s.recorded, &s.waiting, &s.held, &s.refusals, &s.dead)
	if err != nil {
		return s, fmt.Errorf("look at the outbox: %w", err)
	}
	return s, nil
}

// askParked finds the consumers of keys whose parked messages are due, and of keys in work.
const askParked = `
SELECT DISTINCT consumer FROM inbox_key WHERE state <> 'DEAD' AND (owner IS NOT NULL OR due_at <= clock_timestamp())`

func (k *Kit) parkedAreDue(ctx context.Context) (due bool, err error) {
	var consumers []string
	for _, s := range k.App.Inbox.Subscriptions() {
		consumers = append(consumers, s.Name)
	}
	if len(consumers) == 0 {
		return false, nil
	}
	var found []string
	if err := k.DB.NewRaw(askParked).Scan(ctx, &found); err != nil {
		return false, fmt.Errorf("look at the parked messages: %w", err)
	}
	return slices.ContainsFunc(found, func(name string) bool { return slices.Contains(consumers, inboxstate.Family(name)) }), nil
}
