package eachtry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// View is what a handler sees of a message, the number of its delivery apart.
func View(ctx context.Context, m *messaging.Message) string {
	carried, _ := messaging.FromContext(ctx)
	return fmt.Sprintf("%#v key=%q tenant=%q metadata=%#v nil=%t,%t carried=%t", m.Envelope, m.OrderingKey(), event.TenantFrom(ctx),
		event.MetadataFrom(ctx), m.Payload == nil, m.Metadata == nil, carried == m)
}

// Views are what handlers have seen, try by try. The handlers of the zero value fail.
type Views struct {
	mu      sync.Mutex
	seen    map[[2]string][]string // by the consumer and the message's id
	good    int
	succeed bool
	held    bool
}

var errNotNow = errors.New("not now")

// Handler returns one of a consumer.
func (v *Views) Handler(consumer string) messaging.Handler {
	return messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		held, err := v.see(ctx, consumer, m)
		if held {
			<-ctx.Done()
		}
		return err
	})
}

func (v *Views) see(ctx context.Context, consumer string, m *messaging.Message) (held bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.seen == nil {
		v.seen = map[[2]string][]string{}
	}
	of := [2]string{consumer, m.ID}
	v.seen[of] = append(v.seen[of], View(ctx, m))
	if !v.succeed {
		return v.held, errNotNow
	}
	v.good++
	return false, nil
}

// Hold makes the handlers fail when their context ends, and not before.
func (v *Views) Hold() { v.set(&v.held, true) }

// Fail makes the handlers fail at once.
func (v *Views) Fail() { v.set(&v.held, false) }

// Succeed has them succeed.
func (v *Views) Succeed() { v.set(&v.succeed, true) }

func (v *Views) set(what *bool, is bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	*what = is
}

// Succeeded is how often a handler has succeeded.
func (v *Views) Succeeded() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.good
}

// Consumers is how many consumers have seen a message.
func (v *Views) Consumers() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	consumers := map[string]bool{}
	for of := range v.seen {
		consumers[of[0]] = true
	}
	return len(consumers)
}

// Tries returns how many messages were tried at least n times, over all consumers.
func (v *Views) Tries(n int) (messages int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, tries := range v.seen {
		if len(tries) >= n {
			messages++
		}
	}
	return messages
}

// RequireSame fails the test if a message was another one on a later try.
func (v *Views) RequireSame(t testing.TB) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	for of, tries := range v.seen {
		for n, again := range tries[1:] {
			require.Equal(t, tries[0], again, "consumer %s, message %s, try %d", of[0], of[1], n+2)
		}
	}
}
