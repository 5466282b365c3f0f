package recipes_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/examples/recipes"
	"github.com/oncebox/oncebox/oncetest"
	"github.com/oncebox/oncebox/uow"
)

// One call before New is enough for the metrics and spans of all parts.
func TestTelemetryOfAllParts(t *testing.T) {
	var metrics http.Handler
	spans := tracetest.NewInMemoryExporter()
	kit := oncetest.New(t, func(s oncetest.Setup) (*oncebox.App, error) {
		var err error
		if metrics, err = recipes.Observe(&s.Config, trace.NewTracerProvider(trace.WithSyncer(spans))); err != nil {
			return nil, err
		}
		app, err := oncebox.New(s.DB, s.Broker, s.Config)
		if err != nil {
			return nil, err
		}
		event.Register[recipes.Deposited](app.Registry)
		recipes.ConsumeDeposits(app)
		_, err = s.DB.ExecContext(t.Context(), tables)
		return app, err
	})
	within(t, kit, func(_ context.Context, u *uow.Unit) error {
		return u.Add("wallet", recipes.Deposited{Wallet: "w-1", Cents: 7})
	})
	kit.Drain()
	page := httptest.NewRecorder()
	metrics.ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	for _, name := range []string{"oncebox_uow_units_total", "oncebox_outbox_published_total", "oncebox_inbox_messages_total"} {
		require.Contains(t, page.Body.String(), "\n"+name+"{")
	}
	require.NotEmpty(t, spans.GetSpans())
}
