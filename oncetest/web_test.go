package oncetest_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/oncetest"
	"github.com/oncebox/oncebox/serve"
)

// The whole service is under test: its settings, tables, requests and end. An event of another service is as that service would have published it.
func TestServe(t *testing.T) {
	t.Setenv("ONCEBOX_SOURCE", "of the environment")
	closed := 0
	t.Run("service", func(t *testing.T) {
		var got messaging.Message
		var tenant string
		service := serve.Service{
			Source:    "shop",
			Configure: func(app *config.Config, _ *serve.Config) error { app.UoW.TopicPrefix = "test."; return nil },
			Migrate:   serve.Tables("CREATE TABLE IF NOT EXISTS orders (id text)"),
			Setup: func(_ context.Context, app *oncebox.App) (http.Handler, error) {
				event.Register[Placed](app.Registry)
				router := messaging.NewRouter(app.Registry)
				messaging.Handle(router, func(ctx context.Context, e Placed) error {
					m, _ := messaging.FromContext(ctx)
					got, tenant = *m, event.TenantFrom(ctx)
					_, err := app.UoW.DB(ctx).NewRaw("INSERT INTO orders VALUES (?)", e.ID).Exec(ctx)
					return err
				})
				app.Consume("order", "billing", router)
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = w.Write([]byte(r.Method + " " + r.URL.Path + " " + app.Outbox.Source() + " " + event.MetadataFrom(r.Context())[event.CorrelationID]))
				}), nil
			},
			Close: func() error { closed++; return nil },
		}
		kit, web := oncetest.Serve(t, service)
		kit.PublishFrom("orders", "order", Placed{"o-1"}, event.WithTenantID("acme"), event.WithAggregate("order", "o-1", 1))
		kit.CrashAt(oncetest.BeforeAck)
		kit.Drain()
		require.Equal(t, []string{"orders", "acme", "o-1", "test.order"}, []string{got.Source, tenant, got.AggregateID, got.Topic})
		oncetest.RequireNoEvent[Placed](kit)
		require.Equal(t, "GET /a shop c-7", web.Send("GET", "/a", "", "X-Correlation-ID", "c-7").Body.String())
		require.Equal(t, "GET /b shop c-8", web.SendAndDrain("GET", "/b", "", "X-Correlation-ID", "c-8").Body.String(), "it has no statement to wait for")
		var n int
		require.NoError(t, kit.DB.NewRaw("SELECT count(*) FROM orders").Scan(t.Context(), &n))
		require.Equal(t, 1, n)
		require.Zero(t, closed)
	})
	require.Equal(t, 1, closed, "once, although the service was started twice")
}
