package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/inbox/internal/pauses"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/messaging"
)

// Declare makes all subscriptions at once, at a broker that can do so: if it refuses one of them, none is made. After any other error, each
// consumer tries to make its own.
func (c *Consumers) Declare(ctx context.Context, broker messaging.Subscriber) error {
	d, can := broker.(messaging.Declarer)
	if !can {
		return nil
	}
	if err := c.Identify(ctx); err != nil {
		return nil //nolint:nilerr // told to stop
	}
	err := c.Explain(d.Declare(ctx, nil, c.Subscriptions()))
	_, source := errors.AsType[*messaging.SourceError](err)
	_, installation := errors.AsType[*messaging.InstallationError](err)
	// Only these two need a person. Other errors may pass, and each consumer reports its own.
	if source || installation {
		return err
	}
	return nil
}

// SubscribeAll stores the subscriptions of this process's consumers, see inbox.Inbox.Subscribe, and records that the consumers belong to its
// service.
func (c *Consumers) SubscribeAll(ctx context.Context) error {
	if err := c.Own(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	list := make([]Subscription, len(c.all))
	for n, one := range c.all {
		list[n] = Subscription{Topic: one.Subscription.Topic, Consumer: one.Subscription.Name, ReadModel: one.ReadModel}
	}
	c.mu.Unlock()
	return c.Subscribe(ctx, list...)
}

// Receive is the part of inbox.Inbox.Run that receives from the broker, until ctx is done.
func (c *Consumers) Receive(ctx context.Context, broker messaging.Subscriber) error {
	if broker != nil {
		if err := c.Identify(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	c.Pauses.Await(ctx)
	loops, err := c.loops(broker)
	if err != nil {
		return err
	}
	defer c.received()
	group, ctx := errgroup.WithContext(ctx)
	// This member keeps the group alive without loops, so that Receive ends with ctx and not at once.
	group.Go(func() error { <-ctx.Done(); return nil })
	group.Go(func() error { c.Pauses.Follow(ctx); return nil })
	for _, l := range loops {
		group.Go(func() error { return l.Run(ctx) })
	}
	return c.Explain(group.Wait())
}

// loops makes a loop for each consumer. From here on no consumer can be added, because nothing would run it.
func (c *Consumers) loops(broker messaging.Subscriber) (loops []*messaging.Loop, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.receiving = true
	if broker == nil {
		return nil, nil
	}
	for _, one := range c.all {
		one.loop, err = messaging.NewLoop(broker, one.Subscription, one.Handler, &one.Receive)
		if err != nil {
			return nil, err
		}
		if _, is := c.paused[one.Subscription.Name]; is {
			one.loop.Pause()
		}
		loops = append(loops, one.loop)
	}
	return loops, nil
}

// received notes that consumers can be added again.
func (c *Consumers) received() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.receiving = false
}

// pause pauses the consumers in the list, and resumes all others.
func (c *Consumers) pause(list []pauses.Pause) {
	paused := make(map[string]time.Time, len(list))
	for _, p := range list {
		paused[p.Consumer] = time.Now().Add(-p.Age)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	resumed := false
	for name := range c.paused {
		_, still := paused[name]
		resumed = resumed || !still
	}
	c.paused = paused
	for _, one := range c.all {
		if one.loop == nil {
			continue
		}
		if _, is := paused[one.Subscription.Name]; is {
			one.loop.Pause()
		} else {
			one.loop.Resume()
		}
	}
	if resumed {
		c.h.Wake() // what is parked may have been due for long
	}
}

// IsPaused reports whether a consumer is paused, as this process knows it. The generations of a read model share the pause of the read
// model, because an operator knows only that name.
func (c *Consumers) IsPaused(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, is := c.paused[store.Family(name)]
	return is
}

// Health returns nil if the consumers of this process are subscribed and make progress, and an error that says what is wrong otherwise: see
// [messaging.Loop.Health]. Without a broker it does not look at subscriptions.
func (c *Consumers) Health(limit time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, one := range c.all {
		switch {
		case one.loop != nil:
			errs = append(errs, one.loop.Health(limit))
		case !c.receiving:
			errs = append(errs, fmt.Errorf("inbox: consumer %s is not subscribed to %s: Run has not begun", one.Subscription.Name, one.Subscription.Topic))
		}
	}
	return errors.Join(errs...)
}
