package oncetest_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/httpmw/httpjson"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/oncetest"
	"github.com/oncebox/oncebox/serve"
	"github.com/oncebox/oncebox/step"
)

// provider is a payment provider that recognizes keys. It counts the calls of each key.
type provider map[string]int

func (p provider) charge(_ context.Context, key string) (receipt string, err error) {
	p[key]++
	return "receipt", nil
}

func (p provider) once(ctx context.Context) (receipt string, err error) { return p.charge(ctx, "once") }

// service charges an order when it is placed, and when a request asks for it.
func (p provider) service() serve.Service {
	return serve.Service{Source: "payments", Setup: func(_ context.Context, app *oncebox.App) (http.Handler, error) {
		event.Register[OrderPlaced](app.Registry)
		router := messaging.NewRouter(app.Registry)
		messaging.Handle(router, func(ctx context.Context, _ OrderPlaced) error {
			_, err := step.Call(ctx, "charge", p.charge)
			return err
		})
		app.Consume("order", "payments", router, inbox.Leased())

		leased := httpmw.Idempotency(app.UoW, app.Idempotency, httpmw.Anyone, &httpmw.IdempotencyConfig{Lease: &httpmw.LeaseConfig{}})
		mux := http.NewServeMux()
		mux.Handle("POST /pay", leased(httpjson.Handler(http.StatusOK, nil, func(r *http.Request, _ httpjson.Nothing) (string, error) {
			return step.Call(r.Context(), "charge", p.charge)
		})))
		mux.Handle("POST /pay-once", leased(httpjson.Handler(http.StatusOK, nil, func(r *http.Request, _ httpjson.Nothing) (string, error) {
			return idempotency.StepOnce(r.Context(), "charge", p.once)
		})))
		return mux, nil
	}}
}

// The process dies after the call, and before the receipt is stored. The call is made again with the same key.
func TestCrashAfterTheCall(t *testing.T) {
	p := provider{}
	kit, web := oncetest.Serve(t, p.service())
	requireOneKey := func() {
		t.Helper()
		require.Len(t, p, 1)
		for _, calls := range p {
			require.Equal(t, 2, calls)
		}
		clear(p)
	}

	kit.PublishFrom("sales", "order", OrderPlaced{"o-1"})
	kit.CrashAt(oncetest.AfterCall)
	kit.Drain()
	requireOneKey()

	kit.CrashAt(oncetest.AfterCall)
	web.Send("POST", "/pay", "", "Idempotency-Key", "key-1") // nobody gets this answer
	kit.Drain()
	require.Equal(t, http.StatusOK, web.Send("POST", "/pay", "", "Idempotency-Key", "key-1").Code)
	requireOneKey()

	// The provider of a StepOnce knows no keys. It is not called again.
	kit.CrashAt(oncetest.AfterCall)
	web.Send("POST", "/pay-once", "", "Idempotency-Key", "key-2")
	kit.Drain()
	require.Contains(t, web.Send("POST", "/pay-once", "", "Idempotency-Key", "key-2").Body.String(), "idempotency-key-unknown")
	require.Equal(t, provider{"once": 1}, p)
}
