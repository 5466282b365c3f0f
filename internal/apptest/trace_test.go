package apptest_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/extra/bunotel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

type (
	orderTaken struct{}
	billSent   struct{}
)

func (orderTaken) EventType() string { return "order.taken" }
func (billSent) EventType() string   { return "bill.sent" }

// received is what came with the last event of the chain.
type received struct {
	tenant string
	md     event.Metadata
	cause  string // the id of the event before
}

// A request, the event that it causes, the event that the handler of that one causes, and the handler of the second one are
// one story: their spans lead from one to the next, and tenant and correlation stay. Nobody passes anything.
func TestTraceFromRequestToTheLastHandler(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	db := pgtest.Migrated(t).WithQueryHook(bunotel.NewQueryHook(bunotel.WithTracerProvider(provider)))

	cfg := apptest.Config()
	cfg.Telemetry.TracerProvider = provider
	app, err := oncebox.New(db, memory.New(&memory.Config{Telemetry: telemetry.Config{TracerProvider: provider}}), cfg)
	require.NoError(t, err)
	event.Register[orderTaken](app.Registry)
	event.Register[billSent](app.Registry)

	orders, bills := messaging.NewRouter(app.Registry), messaging.NewRouter(app.Registry)
	last := make(chan received, 1)
	var cause atomic.Value
	messaging.Handle(orders, func(ctx context.Context, _ orderTaken) error {
		return app.UoW.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
			m, _ := messaging.FromContext(ctx)
			cause.Store(m.ID)
			trace.SpanFromContext(ctx).SetAttributes(attribute.String("shop.bill", "b-1"))
			return u.Add("bill", billSent{})
		})
	})
	messaging.Handle(bills, func(ctx context.Context, _ billSent) error {
		m, _ := messaging.FromContext(ctx)
		last <- received{event.TenantFrom(ctx), m.Metadata, cause.Load().(string)}
		return nil
	})
	app.Consume("order", "billing", orders)
	app.Consume("bill", "mail", bills)
	stop := apptest.Run(t, app)

	handler := func(w http.ResponseWriter, r *http.Request) {
		err := app.UoW.Do(r.Context(), func(ctx context.Context, u *uow.Unit) error {
			if _, err := u.DB().ExecContext(ctx, "SELECT 1"); err != nil { // a query of the user's, which has a span of its own
				return err
			}
			trace.SpanFromContext(ctx).SetAttributes(attribute.String("shop.order", "o-1"))
			return u.Add("order", orderTaken{}, event.WithAggregate("order", "o-1", 1))
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusOK)
	}
	server := httptest.NewServer(chain(http.HandlerFunc(handler),
		serverSpan(provider.Tracer("test")),
		httpmw.Tenant(func(r *http.Request) (string, error) { return r.Header.Get("X-Tenant-Id"), nil }),
		httpmw.Metadata(),
		httpmw.Idempotency(app.UoW, app.Idempotency, func(*http.Request) (idempotency.Scope, error) { return idempotency.Anonymous(""), nil }, nil),
	))
	defer server.Close()
	post(t, server.URL)

	end := await.Receive(t, last, "the last handler")
	stop()
	chainOf := tellChain(t, spans.GetSpans())
	require.Equal(t, []string{
		"POST /orders", "httpmw.Idempotency", "create order", "send order", "process order", "create bill", "send bill", "process bill",
	}, chainOf.names())

	request, within, processed := chainOf[0], chainOf[1], chainOf[4]
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", request.SpanContext.TraceID().String(), "the caller's trace")
	require.Contains(t, within.Attributes, attribute.String("shop.order", "o-1"), "the span that is current in the handler")
	require.Contains(t, processed.Attributes, attribute.String("shop.bill", "b-1"))
	for i, kind := range []trace.SpanKind{
		trace.SpanKindServer, trace.SpanKindInternal, trace.SpanKindProducer, trace.SpanKindClient, trace.SpanKindConsumer,
	} {
		require.Equal(t, kind, chainOf[i].SpanKind)
	}
	for i, operation := range []string{"", "", "create", "send", "process"} {
		if operation != "" {
			require.Contains(t, chainOf[i].Attributes, attribute.String("messaging.operation.name", operation))
			require.Contains(t, chainOf[i].Attributes, attribute.String("messaging.operation.type", operation))
			require.Contains(t, chainOf[i].Attributes, attribute.String("messaging.destination.name", "order"))
		}
	}
	require.Equal(t, "acme", end.tenant)
	require.Equal(t, "c-7", end.md[event.CorrelationID])
	require.Equal(t, end.cause, end.md[event.CausationID])
}

// The control of the test above: within bun's own RunInTx the current span is that of BEGIN, which has ended.
func TestAttributesWithinRunInTxAreLost(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	db := pgtest.Open(t).WithQueryHook(bunotel.NewQueryHook(bunotel.WithTracerProvider(provider)))
	mark := func(ctx context.Context, how string) {
		trace.SpanFromContext(ctx).SetAttributes(attribute.Bool(how, true))
	}

	ctx, span := provider.Tracer("test").Start(t.Context(), "work")
	require.NoError(t, db.RunInTx(ctx, nil, func(ctx context.Context, _ bun.Tx) error {
		mark(ctx, "RunInTx")
		return nil
	}))
	units := uow.New(db, nil)
	require.NoError(t, units.Do(ctx, func(ctx context.Context, _ *uow.Unit) error {
		mark(ctx, "Do")
		return units.Do(ctx, func(ctx context.Context, _ *uow.Unit) error {
			mark(ctx, "nested Do")
			return nil
		})
	}))
	tx, err := units.Begin(ctx)
	require.NoError(t, err)
	mark(tx.Context(), "Begin")
	require.NoError(t, tx.Commit())
	span.End()

	for _, s := range spans.GetSpans() {
		require.NotContains(t, s.Attributes, attribute.Bool("RunInTx", true))
		if s.Name == "work" {
			for _, how := range []string{"Do", "nested Do", "Begin"} {
				require.Contains(t, s.Attributes, attribute.Bool(how, true))
			}
			return
		}
	}
	t.Fatal("the span was not exported")
}

// serverSpan is what otelhttp does: a span of the request, in the caller's trace.
func serverSpan(tracer trace.Tracer) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
			ctx, span := tracer.Start(ctx, r.Method+" "+r.URL.Path, trace.WithSpanKind(trace.SpanKindServer))
			defer span.End()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}

func chain(h http.Handler, middleware ...func(http.Handler) http.Handler) http.Handler {
	for _, m := range slices.Backward(middleware) {
		h = m(h)
	}
	return h
}

func post(t *testing.T, url string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/orders", strings.NewReader("{}"))
	require.NoError(t, err)
	for name, value := range map[string]string{
		"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "X-Tenant-Id": "acme",
		"X-Correlation-ID": "c-7", "Idempotency-Key": "k-1",
	} {
		r.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, http.StatusOK, answer.StatusCode)
}

// story is spans in the order in which one leads to the next.
type story []tracetest.SpanStub

func (s story) names() (names []string) {
	for _, span := range s {
		names = append(names, span.Name)
	}
	return names
}

// tellChain goes from the server's span to the last handler's: an event is created in a child of the span before and processed in a child of
// that one. What sends it, perhaps beside others, is linked to the span in which it was created.
func tellChain(t *testing.T, spans tracetest.SpanStubs) story {
	t.Helper()
	only := func(prefix string, fits func(tracetest.SpanStub) bool) tracetest.SpanStub {
		found := slices.Collect(func(yield func(tracetest.SpanStub) bool) {
			for _, s := range spans {
				if strings.HasPrefix(s.Name, prefix) && fits(s) && !yield(s) {
					return
				}
			}
		})
		require.Len(t, found, 1, "%s", prefix)
		return found[0]
	}
	told := story{only("POST", func(tracetest.SpanStub) bool { return true })}
	told = append(told, only("httpmw", func(s tracetest.SpanStub) bool { return s.Parent.SpanID() == told[0].SpanContext.SpanID() }))
	for range 2 {
		before := told[len(told)-1].SpanContext
		created := only("create", func(s tracetest.SpanStub) bool { return s.Parent.SpanID() == before.SpanID() })
		linked := func(s tracetest.SpanStub) bool {
			return !s.Parent.IsValid() && slices.ContainsFunc(s.Links, func(l sdktrace.Link) bool {
				return l.SpanContext.TraceID() == created.SpanContext.TraceID() && l.SpanContext.SpanID() == created.SpanContext.SpanID()
			})
		}
		told = append(told, created, only("send", linked), only("process", func(s tracetest.SpanStub) bool {
			return s.Parent.SpanID() == created.SpanContext.SpanID() && s.SpanContext.TraceID() == told[0].SpanContext.TraceID()
		}))
	}
	return told
}
