package inbox_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// kinds are messages as brokers bring them: of other programs, and of oncebox.
func kinds() map[string]event.Envelope {
	of := func(change func(*event.Envelope)) event.Envelope {
		e := event.Envelope{ID: "1", Type: "t", Source: "s", Topic: "order"}
		change(&e)
		return e
	}
	return map[string]event.Envelope{
		"bare":                of(func(*event.Envelope) {}),
		"a key":               of(func(e *event.Envelope) { e.RoutingKey = "k" }),
		"a key with NUL":      of(func(e *event.Envelope) { e.RoutingKey, e.ContentType = "a\x00b\xff", "text/\x00\xfe" }),
		"a key of 1000 bytes": of(func(e *event.Envelope) { e.RoutingKey = strings.Repeat("ä|\\", 200) }),
		"an empty payload":    of(func(e *event.Envelope) { e.Payload = []byte{} }),
		"bytes":               of(func(e *event.Envelope) { e.Payload = []byte("\x00\xff") }),
		"nanoseconds elsewhere": of(func(e *event.Envelope) {
			e.OccurredAt = time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.FixedZone("CET", 3600))
		}),
		"before 1970":           of(func(e *event.Envelope) { e.OccurredAt = time.Date(1815, 12, 10, 0, 0, 0, 1999, time.UTC) }),
		"a time of no calendar": of(func(e *event.Envelope) { e.OccurredAt = time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC) }),
		"strange versions": of(func(e *event.Envelope) {
			e.SchemaVersion, e.Sequence, e.AggregateVersion = math.MaxInt64, math.MaxInt64, 7
		}),
		"strange metadata": of(func(e *event.Envelope) {
			e.Metadata = event.Metadata{"nul": "a\x00b", "not\xff\xfeUTF-8": "\xff\xfe", "<&>\u2028": "<&>\u2028", "": ""}
		}),
		"an aggregate": of(func(e *event.Envelope) { e.AggregateType, e.AggregateID, e.RoutingKey = "o|1", `a\b`, "o1" }),
		"an aggregate without type, with a tenant": of(func(e *event.Envelope) { e.AggregateID, e.TenantID = "o1", "t|1" }),
		"an aggregate and a key": of(func(e *event.Envelope) {
			e.AggregateType, e.AggregateID, e.RoutingKey, e.Delivery.OrderingKey, e.TenantID = "order", "o1", "x|y", "x|y", "t1"
		}),
		"a key and another routing key": of(func(e *event.Envelope) { e.RoutingKey, e.Delivery.OrderingKey = "r", `o\` }),
		"what only its sender needs": of(func(e *event.Envelope) {
			e.Delivery = event.Delivery{OrderingKey: "k", DedupKey: "d", NotBefore: time.Now(), ExpiresAt: time.Now(), MaxAttempts: 3}
		}),
		"own": of(func(e *event.Envelope) {
			e.ID, e.TenantID, e.AggregateType, e.AggregateID, e.RoutingKey = "0198c0de-0000-7000-8000-000000000001", "t1", "order", "o1", "o1"
			e.SchemaID, e.SchemaVersion, e.Sequence, e.AggregateVersion, e.ContentType = "urn:x", 2, 17, 3, "application/json"
			e.OccurredAt, e.Payload = time.Date(2026, 1, 2, 3, 4, 5, 123456000, time.UTC), []byte(`{"a":1}`)
			e.Metadata = event.Metadata{event.CorrelationID: "c", "x": "y"}
		}),
	}
}

// view is what a handler sees of a message, its number apart.
func view(ctx context.Context, m *messaging.Message) string {
	carried, _ := messaging.FromContext(ctx)
	return fmt.Sprintf("%#v key=%q tenant=%q metadata=%#v nil=%t,%t carried=%t", m.Envelope, m.OrderingKey(), event.TenantFrom(ctx),
		event.MetadataFrom(ctx), m.Payload == nil, m.Metadata == nil, carried == m)
}

// views collects them.
type views struct {
	mu   sync.Mutex
	seen []string
	ok   bool
}

func (v *views) Handle(ctx context.Context, m *messaging.Message) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen = append(v.seen, view(ctx, m))
	if v.ok {
		return nil
	}
	return errNotNow
}

func (v *views) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.seen)
}

func (v *views) succeed() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ok = true
}

// A handler sees the same message on each try: when it came, when it comes again, from the table, and after an operator's replay.
func TestMessageIsTheSameOnEachTry(t *testing.T) {
	t.Parallel()
	ways := map[string]func(*inbox.Inbox, messaging.Handler) messaging.Handler{
		"plain": func(b *inbox.Inbox, h messaging.Handler) messaging.Handler { return b.Wrap("billing", h) },
		"unordered": func(b *inbox.Inbox, h messaging.Handler) messaging.Handler {
			return b.Wrap("billing", h, inbox.Unordered())
		},
		"leased": func(b *inbox.Inbox, h messaging.Handler) messaging.Handler { return b.WrapLeased("billing", h) },
		"stored first": func(b *inbox.Inbox, h messaging.Handler) messaging.Handler {
			return b.Wrap("billing", h, inbox.StoreFirst())
		},
		"projection": func(b *inbox.Inbox, h messaging.Handler) messaging.Handler { return b.Projection("billing", h) },
	}
	for way, wrap := range ways {
		for kind, e := range kinds() {
			t.Run(way+" "+kind, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				box := w.hasty(func(c *inbox.Config) { c.Retry.Tries, c.Retry.MaxAttempts = 2, 4 })
				v := &views{}
				h := wrap(box, v)
				settleLater(t, h, messaging.NewMessage(e, 1, nil))
				runParked(t, box)
				await.True(t, func() bool { return len(w.dead()) == 1 }, "it is a dead letter")
				require.Equal(t, 4, v.count())
				v.succeed()
				require.NoError(t, w.operator().Replay(t.Context(), w.dead()[0].Key, ann))
				await.True(t, func() bool { return v.count() == 5 }, "it is replayed")
				for _, again := range v.seen[1:] {
					require.Equal(t, v.seen[0], again)
				}
			})
		}
	}
}

// A bulk writer sees in a batch what it sees of a message alone, and what a parked one is.
func TestMessageOfABatchIsWhatItIsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(func(c *inbox.Config) { c.CrashGuard = -1 })
	var mu sync.Mutex
	seen := map[string][]string{}
	failing := true
	h := box.WrapBatch("billing", func(ctx context.Context, msgs []*messaging.Message) error {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range msgs {
			seen[m.ID] = append(seen[m.ID], view(messaging.NewContext(ctx, m), m))
		}
		if failing {
			return errNotNow
		}
		return nil
	})
	var msgs []*messaging.Message
	for kind, e := range kinds() {
		e.ID, e.AggregateID = kind, "" // each in an order of its own, or in none
		e.Delivery.OrderingKey, e.RoutingKey = kind+e.Delivery.OrderingKey, ""
		msgs = append(msgs, messaging.NewMessage(e, 1, nil))
	}
	require.Error(t, h.HandleBatch(t.Context(), msgs))
	settle := func(m *messaging.Message) { settleLater(t, h.(messaging.Handler), m) }
	for _, m := range msgs {
		settle(m)
	}
	mu.Lock()
	failing = false
	mu.Unlock()
	runParked(t, box)
	await.True(t, func() bool { return len(w.parked()) == 0 }, "no message is parked")
	for kind, tries := range seen {
		require.GreaterOrEqual(t, len(tries), 3, kind)
		for _, again := range tries[1:] {
			require.Equal(t, tries[0], again, kind)
		}
	}
}

// The tenant that a handler of a message without one works for is that of its retries, also for what it emits.
func TestMessageWithoutTenantIsOfTheDefaultOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		require.Equal(t, inbox.DefaultTenant, m.TenantID)
		require.Equal(t, inbox.DefaultTenant, event.TenantFrom(ctx))
		_, within := uow.FromContext(ctx)
		require.True(t, within)
		return nil
	}))
	m := messaging.NewMessage(event.Envelope{ID: "1", Type: "t", Source: "s", Topic: "order"}, 1, nil)
	require.NoError(t, h.Handle(t.Context(), m))
	require.Empty(t, m.TenantID, "the caller's message is as it was")
}
