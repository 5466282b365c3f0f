// Package process knows which consumers this process runs: it subscribes them, receives their messages, records which service they belong to,
// and reports what they do.
//
// Read first: consumers.go:Consumers, then receive.go:Consumers.Receive and report.go:Consumers.RunReporting.
package process

import (
	"errors"
	"sync"
	"time"

	"github.com/oncebox/oncebox/inbox/internal/pauses"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
)

// Consumer is one call of inbox.Inbox.Consume.
type Consumer struct {
	Subscription messaging.Subscription
	Receive      messaging.ConsumerConfig
	Handler      messaging.Handler
	// StoresFirst says that its messages are stored before they are handled. ReadModel says that it is the consumer of a read model.
	StoresFirst, Unordered, ReadModel bool
	// Limit is when it gives a message up.
	Limit operator.Limit

	loop *messaging.Loop // nil before it receives
}

// Consumers are the consumers of this process. It is safe for concurrent use.
type Consumers struct {
	h *store.Handle
	// Pauses keeps this process up to date about paused consumers.
	Pauses *pauses.Follower

	mu         sync.Mutex
	all        []*Consumer
	receiving  bool
	subscribed map[string]subscribed // by topic
	asked      map[string]time.Time  // by consumer: when it was last asked whether any process handles its parked messages
	paused     map[string]time.Time  // by consumer that is paused: since when
	owned      map[string]bool       // by consumer: it is known to belong to its service
	tallies    sync.Map              // by consumer: *tally
}

// New returns the consumers of a process, none at first.
func New(h *store.Handle) *Consumers {
	c := &Consumers{
		h: h, subscribed: map[string]subscribed{}, asked: map[string]time.Time{},
		owned: map[string]bool{},
	}
	c.Pauses = pauses.NewFollower(h, c.pause)
	return c
}

// CheckNew returns why a consumer cannot be added, nil if it can.
func (c *Consumers) CheckNew(topic, name string) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.receiving {
		err = errors.New("nothing would be received, because Run has begun: call it before Run")
	}
	if c.find(topic, name) != nil {
		err = errors.Join(err, errors.New("there is such a consumer already"))
	}
	return err
}

// Add adds a consumer.
func (c *Consumers) Add(one *Consumer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, one)
}

// find returns the consumer of a topic, nil if this process has none. The caller holds the mutex.
func (c *Consumers) find(topic, name string) *Consumer {
	for _, one := range c.all {
		if one.Subscription.Topic == topic && one.Subscription.Name == name {
			return one
		}
	}
	return nil
}

// IsUnordered reports whether this process has the consumer of a topic, and without order.
func (c *Consumers) IsUnordered(topic, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.find(topic, name)
	return one != nil && one.Unordered
}

// AtOnce returns how many keys of a consumer this process works on at once: 0 while the consumer is paused, and at least its Concurrency if
// all of its messages are stored first. n is the number for a consumer of no such kind.
func (c *Consumers) AtOnce(name string, n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, is := c.paused[store.Family(name)]; is {
		return 0
	}
	for _, one := range c.all {
		if one.Subscription.Name == store.Family(name) && (one.StoresFirst || c.receiving && one.loop == nil) {
			n = max(n, one.Receive.WithDefaults().Concurrency)
		}
	}
	return n
}

// Subscriptions returns the subscriptions of this process's consumers.
func (c *Consumers) Subscriptions() []messaging.Subscription {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]messaging.Subscription, len(c.all))
	for n, one := range c.all {
		list[n] = one.Subscription
	}
	return list
}
