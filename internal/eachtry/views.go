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

// View returns everything that a handler sees of a message, except for the number of the delivery.
func View(ctx context.Context, m *messaging.Message) string {
	carried, _ := messaging.FromContext(ctx)
	return fmt.Sprintf("%#v key=%q tenant=%q metadata=%#v nil=%t,%t carried=%t", m.Envelope, m.OrderingKey(), event.TenantFrom(ctx),
		event.MetadataFrom(ctx), m.Payload == nil, m.Metadata == nil, carried == m)
}

// Views records what handlers have seen, try by try. Its handlers fail until Succeed is called.
type Views struct {
	mu      sync.Mutex
	seen    map[[2]string][]string // by consumer and message id
	good    int
	succeed bool
	held    bool
}

var errNotNow = errors.New("not now")

// Handler returns a handler for a consumer.
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

// Hold makes the handlers fail only when their context ends.
func (v *Views) Hold() { v.set(&v.held, true) }

// Fail makes the handlers fail at once.
func (v *Views) Fail() { v.set(&v.held, false) }

// Succeed makes the handlers succeed.
func (v *Views) Succeed() { v.set(&v.succeed, true) }

func (v *Views) set(what *bool, is bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	*what = is
}

// Succeeded returns how often a handler has succeeded.
func (v *Views) Succeeded() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.good
}

// Consumers returns how many consumers have seen a message.
func (v *Views) Consumers() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	consumers := map[string]bool{}
	for of := range v.seen {
		consumers[of[0]] = true
	}
	return len(consumers)
}

// Tries returns how many messages were tried at least n times, at all consumers together.
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

// RequireSame fails the test if a handler has seen a message differently on a later try.
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
