// Package shop is the reference service as a function, so that programs for different brokers are the same service. The documentation of
// [github.com/oncebox/oncebox/examples/orders] describes it.
//
// Read first: order.go:Order, then service.go:Service.
package shop

import (
	"cmp"
	"context"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/serve"
	"github.com/oncebox/oncebox/uow"
)

// conflictAttempts is how often a request is tried when others change its order at the same time.
const conflictAttempts = 20

// service is what the functions of one process share.
type service struct {
	units  *uow.Manager
	tenant string // of requests that name none
}

// Service returns the shop.
func Service() serve.Service {
	s := &service{}
	return serve.Service{
		Source: "orders", Defaults: serve.Config{Migrate: true}, Configure: s.configure, Migrate: serve.Tables(tables), Setup: s.setup, Ready: s.ready,
	}
}

func (s *service) configure(app *config.Config, _ *serve.Config) error {
	app.UoW.DefaultTenantID = cmp.Or(app.UoW.DefaultTenantID, "default")
	app.UoW.Retry.MaxAttempts = cmp.Or(app.UoW.Retry.MaxAttempts, conflictAttempts)
	s.tenant = app.UoW.DefaultTenantID
	return nil
}

func (s *service) setup(_ context.Context, app *oncebox.App) (http.Handler, error) {
	s.units = app.UoW
	registerEvents(app.Registry)
	app.Consume(OrderTopic, SummaryConsumer, summarize(app.UoW, app.Registry))
	r := chi.NewRouter()
	s.mount(r, app)
	return r, nil
}

// ready reports tables of the service that are missing.
func (s *service) ready(ctx context.Context) error { return checkTables(ctx, s.units.DB(ctx)) }
