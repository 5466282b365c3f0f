package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/internal/arrival"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/messaging"
)

// Run runs the consumers of [Inbox.Consume] until ctx is done: it receives their messages from the broker and handles them, handles parked
// messages, and cleans. If broker is nil, a relay stores their messages ([Inbox.Publisher]) and they are handled from the database.
//
// It returns an error at once when the subscriptions are refused. It waits for a broker or a database that cannot be reached. Any number of
// processes may run the same consumers. When ctx is cancelled, handlers go on for up to ConsumerConfig.DrainTimeout and
// [Config.DrainTimeout] before their context is cancelled.
func (i *Inbox) Run(ctx context.Context, broker messaging.Subscriber) error {
	defer quietlog.Flush(i.store.Log)
	if err := i.EnsurePartitions(ctx); err != nil && ctx.Err() == nil {
		i.store.Log.WarnContext(ctx, "oncebox: partitions of the inbox could not be made, rows go to the default one", "error", err)
	}
	if broker == nil {
		err := arrival.Wait{Limit: i.cfg.DatabaseWait, Log: i.store.Log}.Until(ctx, func() error { return i.SubscribeAll(ctx) })
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := i.declare(ctx, broker); err != nil {
			return err
		}
		return i.Receive(ctx, broker)
	})
	group.Go(func() error { return i.RunParked(ctx) })
	group.Go(func() error { return i.RunCleaning(ctx) })
	group.Go(func() error { return i.RunReporting(ctx, broker, nil) })
	group.Go(func() error { i.state.WatchBrokers(ctx, broker); return nil })
	return group.Wait()
}

// declare makes all subscriptions at once, at a broker that can do so: if it refuses one of them, none is made. After any other error, each
// consumer tries to make its own.
func (i *Inbox) declare(ctx context.Context, broker messaging.Subscriber) error {
	d, can := broker.(messaging.Declarer)
	if !can {
		return nil
	}
	if err := i.Identify(ctx); err != nil {
		return nil //nolint:nilerr // told to stop
	}
	err := i.Explain(d.Declare(ctx, nil, i.Subscriptions()))
	_, source := errors.AsType[*messaging.SourceError](err)
	_, installation := errors.AsType[*messaging.InstallationError](err)
	if source || installation {
		return err
	}
	return nil
}

// SubscribeAll stores the subscriptions of this process's consumers, see [Inbox.Subscribe], and records that the consumers belong to its
// service.
func (i *Inbox) SubscribeAll(ctx context.Context) error {
	if err := i.own(ctx); err != nil {
		return err
	}
	i.mu.Lock()
	list := make([]Subscription, len(i.consuming))
	for n, c := range i.consuming {
		_, model := c.handler.(*Generations)
		list[n] = Subscription{Topic: c.subscription.Topic, Consumer: c.subscription.Name, ReadModel: model}
	}
	i.mu.Unlock()
	return i.Subscribe(ctx, list...)
}

// Receive is the part of [Inbox.Run] that receives from the broker, until ctx is done.
func (i *Inbox) Receive(ctx context.Context, broker messaging.Subscriber) error {
	if broker != nil {
		if err := i.Identify(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	loops, err := i.loops(broker)
	if err != nil {
		return err
	}
	defer i.received()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { <-ctx.Done(); return nil })
	for _, l := range loops {
		group.Go(func() error { return l.Run(ctx) })
	}
	return i.Explain(group.Wait())
}

func (i *Inbox) loops(broker messaging.Subscriber) (loops []*messaging.Loop, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.receiving = true
	if broker == nil {
		return nil, nil
	}
	for _, c := range i.consuming {
		c.loop, err = messaging.NewLoop(broker, c.subscription, c.handler, &c.settings.receive)
		if err != nil {
			return nil, err
		}
		if i.paused[c.subscription.Name] {
			c.loop.Pause()
		}
		loops = append(loops, c.loop)
	}
	return loops, nil
}

// received notes that consumers can be added again.
func (i *Inbox) received() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.receiving = false
}

// Pause stops the flow of messages to all consumers of that name in this process, until [Inbox.Resume]: for the time in which something
// that their handlers need is down. Messages that were received already are still handled, and parked messages wait. The consumers keep
// their place among the other instances. It returns an error if there is no such consumer.
func (i *Inbox) Pause(name string) error { return i.setPaused(name, "Pause", (*messaging.Loop).Pause) }

// Resume starts the flow again.
func (i *Inbox) Resume(name string) error {
	defer i.wake()
	return i.setPaused(name, "Resume", (*messaging.Loop).Resume)
}

func (i *Inbox) setPaused(name, call string, fn func(*messaging.Loop)) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	found := false
	for _, c := range i.consuming {
		if c.subscription.Name != name {
			continue
		}
		found = true
		if c.loop != nil {
			fn(c.loop)
		}
	}
	if !found {
		return fmt.Errorf("inbox: %s: this process has no consumer %q: see Inbox.Consume", call, name)
	}
	i.paused[name] = call == "Pause"
	if _, since := i.pausedAt[name]; i.paused[name] && !since {
		i.pausedAt[name] = time.Now()
	} else if !i.paused[name] {
		delete(i.pausedAt, name)
	}
	return nil
}

// Health returns nil if the consumers of this process are subscribed and make progress, and an error that says what is wrong otherwise: see
// [messaging.Loop.Health]. Without a broker it does not look at subscriptions.
func (i *Inbox) Health(limit time.Duration) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	var errs []error
	for _, c := range i.consuming {
		switch {
		case c.loop != nil:
			errs = append(errs, c.loop.Health(limit))
		case !i.receiving:
			errs = append(errs, fmt.Errorf("inbox: consumer %s is not subscribed to %s: Run has not begun", c.subscription.Name, c.subscription.Topic))
		}
	}
	return errors.Join(errs...)
}
