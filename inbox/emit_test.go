package inbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/readmodel"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

type invoiced struct{ Of string }

func (invoiced) EventType() string { return "invoice.made" }

// invoice is an aggregate of the handlers' own.
type invoice struct {
	event.Recorder `bun:"-"`
	bun.BaseModel  `bun:"table:invoices"`

	ID      string `bun:",pk"`
	Version int64
}

func (*invoice) AggregateType() string     { return "invoice" }
func (i *invoice) AggregateID() string     { return i.ID }
func (i *invoice) AggregateVersion() int64 { return i.Version }

func newInvoice(id string) *invoice {
	i := &invoice{ID: id}
	i.Record(invoiced{id})
	return i
}

// committed is a sink for several goroutines.
type committed struct {
	mu     sync.Mutex
	events []event.Envelope
}

func (*committed) Flush(context.Context, bun.IDB, []event.Envelope) error { return nil }

func (c *committed) Committed(_ context.Context, evs []event.Envelope) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, evs...)
}

func (c *committed) all() []event.Envelope {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clip(c.events)
}

// emitting is a world whose handlers emit events, in all ways that there are.
type emitting struct {
	*world

	sink   *committed
	tracer trace.TracerProvider
	mu     sync.Mutex
	traces map[string]trace.TraceID // in which a message was handled
}

func newEmitting(t *testing.T) *emitting {
	t.Helper()
	e := &emitting{sink: &committed{}, tracer: sdktrace.NewTracerProvider(), traces: map[string]trace.TraceID{}}
	e.world = newWorld(t)
	_, err := e.db.ExecContext(t.Context(), "CREATE TABLE invoices (id text PRIMARY KEY, version bigint NOT NULL)")
	require.NoError(t, err)
	registry := event.NewRegistry()
	event.Register[invoiced](registry)
	e.units = uow.New(e.db.DB, &uow.Config{
		Source: "test", Telemetry: telemetry.Config{Logger: quiet()}, Registry: registry, DefaultTenantID: "default",
	}, e.sink)
	uow.On(e.units, func(_ context.Context, u *uow.Unit, i invoiced) error { return u.Add("by-rule", i) })
	return e
}

func (e *emitting) box(change func(*inbox.Config)) *inbox.Inbox {
	return e.hasty(func(c *inbox.Config) {
		c.CrashGuard, c.Telemetry.TracerProvider = -1, e.tracer
		if change != nil {
			change(c)
		}
	})
}

// emit does so in the unit of ctx.
func (e *emitting) emit(ctx context.Context, m *messaging.Message) error {
	e.mu.Lock()
	e.traces[m.ID] = trace.SpanContextFromContext(ctx).TraceID()
	e.mu.Unlock()
	u := uow.MustFromContext(ctx)
	u.Track(newInvoice("tracked " + m.ID))
	if err := u.Save(ctx, newInvoice("saved "+m.ID)); err != nil {
		return err
	}
	return u.Add("by-hand", map[string]string{"of": m.ID})
}

func about(n int) *messaging.Message {
	m := ordered(fmt.Sprint("m", n), fmt.Sprint("o", n))
	m.TenantID = fmt.Sprint("tenant-", n)
	m.Metadata = event.Metadata{event.CorrelationID: fmt.Sprint("request-", n)}
	return m
}

// Whichever way a message comes to its handler, what the handler emits has the tenant, the cause and the trace of the message.
func TestEmittedEventsAreTiedToTheMessageOnEveryPath(t *testing.T) {
	type path func(t *testing.T, e *emitting, msgs []*messaging.Message)
	oneByOne := func(t *testing.T, e *emitting, h messaging.Handler, msgs []*messaging.Message) {
		t.Helper()
		h = messaging.Instrument(h, &messaging.ConsumerConfig{Telemetry: telemetry.Config{TracerProvider: e.tracer}})
		for _, m := range msgs {
			require.NoError(t, h.Handle(t.Context(), m))
		}
	}
	batch := func(t *testing.T, e *emitting, h messaging.Handler, msgs []*messaging.Message) {
		t.Helper()
		ctx, span := e.tracer.Tracer("test").Start(t.Context(), "batch")
		defer span.End()
		require.NoError(t, h.(messaging.BatchHandler).HandleBatch(ctx, msgs))
	}
	for name, run := range map[string]path{
		"first try": func(t *testing.T, e *emitting, msgs []*messaging.Message) {
			oneByOne(t, e, e.box(nil).Wrap("billing", messaging.HandlerFunc(e.emit)), msgs)
		},
		"parked": func(t *testing.T, e *emitting, msgs []*messaging.Message) {
			box := e.box(nil)
			oneByOne(t, e, box.Wrap("billing", messaging.HandlerFunc(e.emit), inbox.StoreFirst()), msgs)
			require.Empty(t, e.sink.all())
			runParked(t, box)
		},
		"batch": func(t *testing.T, e *emitting, msgs []*messaging.Message) {
			batch(t, e, e.box(nil).Wrap("billing", messaging.HandlerFunc(e.emit)), msgs)
		},
		"bulk writer": func(t *testing.T, e *emitting, msgs []*messaging.Message) {
			batch(t, e, e.box(nil).WrapBatch("billing", func(ctx context.Context, msgs []*messaging.Message) error {
				for _, m := range msgs {
					if err := e.emit(messaging.NewContext(ctx, m), m); err != nil {
						return err
					}
				}
				return nil
			}), msgs)
		},
		"leased": func(t *testing.T, e *emitting, msgs []*messaging.Message) {
			oneByOne(t, e, e.box(nil).WrapLeased("billing", e.step()), msgs)
		},
		"leased, parked": func(t *testing.T, e *emitting, msgs []*messaging.Message) {
			box := e.box(nil)
			oneByOne(t, e, box.WrapLeased("billing", e.step(), inbox.StoreFirst()), msgs)
			runParked(t, box)
		},
		"read-model": func(t *testing.T, e *emitting, msgs []*messaging.Message) {
			oneByOne(t, e, readmodel.New(e.box(nil), "totals", messaging.HandlerFunc(e.emit)), msgs)
		},
		"read model, replayed": func(t *testing.T, e *emitting, msgs []*messaging.Message) {
			ctx, span := e.tracer.Tracer("test").Start(t.Context(), "rebuild")
			defer span.End()
			empty := func(context.Context, *uow.Unit) error { return nil }
			kept := func(ctx context.Context, _ string, to func(context.Context, []event.Envelope, string) error) error {
				var all []event.Envelope
				for _, m := range msgs {
					all = append(all, m.Envelope)
				}
				return to(ctx, all, "end")
			}
			require.NoError(t, readmodel.New(e.box(nil), "totals", messaging.HandlerFunc(e.emit)).Rebuild(ctx, empty, kept, nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEmitting(t)
			msgs := []*messaging.Message{about(1), about(2)}
			run(t, e, msgs)
			await.True(t, func() bool { return len(e.sink.all()) == 10 },
				"ten events: each message emits one in each way, and the rule one for each of the aggregates'")
			for _, got := range e.sink.all() {
				m := msgs[0]
				if got.TenantID == msgs[1].TenantID {
					m = msgs[1]
				}
				require.Equal(t, m.TenantID, got.TenantID, got.Topic)
				require.Contains(t, string(got.Payload), m.ID)
				require.Equal(t, m.ID, got.Metadata[event.CausationID], got.Topic)
				require.Equal(t, m.Metadata[event.CorrelationID], got.Metadata[event.CorrelationID], got.Topic)
				require.Contains(t, got.Metadata[event.TraceParent], e.traces[m.ID].String(), got.Topic)
			}
		})
	}
}

// step emits in a unit of a leased handler.
func (e *emitting) step() messaging.Handler {
	return messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		return inbox.StepInUnit(ctx, "emit", func(ctx context.Context, _ *uow.Unit) error { return e.emit(ctx, m) })
	})
}

// An event that a bulk writer emits without a message would get the default tenant. So it is refused, and the messages
// are handled one by one, each under its own tenant.
func TestBulkWriterHasToSayWhoseEventsAre(t *testing.T) {
	t.Parallel()
	for name, emit := range map[string]func(*uow.Unit) error{
		"Add":   func(u *uow.Unit) error { return u.Add("by-hand", map[string]int{"total": 1}) },
		"Track": func(u *uow.Unit) error { u.Track(newInvoice("1")); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEmitting(t)
			var log lines
			box := inbox.New(e.units, &inbox.Config{CrashGuard: -1, Telemetry: telemetry.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
			var several []error
			h := box.WrapBatch("billing", func(ctx context.Context, msgs []*messaging.Message) error {
				u := uow.MustFromContext(ctx)
				err := emit(u)
				if len(msgs) > 1 {
					several = append(several, err)
				}
				return err
			})
			require.NoError(t, h.HandleBatch(t.Context(), []*messaging.Message{about(1), ordered("m1", "o1")}))
			require.Len(t, several, 1)
			require.Contains(t, log.String(), "event.WithTenantID")
			var tenants []string
			for _, got := range e.sink.all() {
				tenants = append(tenants, got.TenantID)
			}
			require.NotContains(t, tenants, "default")
			require.Subset(t, tenants, []string{"tenant-1", "t1"})
		})
	}
	t.Run("named", func(t *testing.T) {
		e := newEmitting(t)
		h := e.box(nil).WrapBatch("billing", func(ctx context.Context, msgs []*messaging.Message) error {
			u := uow.MustFromContext(ctx)
			return u.Add("by-hand", len(msgs), event.WithTenantID("t7"))
		})
		require.NoError(t, h.HandleBatch(t.Context(), []*messaging.Message{about(1), about(2)}))
		require.Len(t, e.sink.all(), 1)
		require.Equal(t, "t7", e.sink.all()[0].TenantID)
	})
}
