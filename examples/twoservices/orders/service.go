// Package orders is the service that takes orders. It sends order.placed, and handles invoice.sent of the service invoices.
package orders

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/examples/twoservices/shopevents"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/httpmw/httpjson"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/serve"
	"github.com/oncebox/oncebox/uow"
)

// Source is the name of this service in its events.
const Source = "orders"

// Order is an aggregate.
type Order struct {
	event.Recorder `bun:"-" json:"-"`

	bun.BaseModel `bun:"table:orders" json:"-"`
	ID            string `bun:",pk"          json:"id"`
	Total         int64  `json:"total"`
	Invoice       string `json:"invoice"` // empty until the service invoices has sent it
	Version       int64  `json:"-"`
}

func (o *Order) AggregateType() string   { return shopevents.Orders }
func (o *Order) AggregateID() string     { return o.ID }
func (o *Order) AggregateVersion() int64 { return o.Version }

// Place makes an order.
func Place(id string, total int64) *Order {
	o := &Order{ID: id, Total: total}
	o.Record(shopevents.OrderPlaced{OrderID: id, Total: total})
	return o
}

const tables = `CREATE TABLE IF NOT EXISTS orders
	(id text PRIMARY KEY, total bigint NOT NULL, invoice text NOT NULL DEFAULT '', version bigint NOT NULL)`

// Service returns the service.
func Service() serve.Service {
	return serve.Service{
		Source: Source, Setup: setup, Migrate: serve.Tables(tables),
		Defaults: serve.Config{Migrate: true, LogFormat: "json"},
	}
}

func setup(_ context.Context, app *oncebox.App) (http.Handler, error) {
	shopevents.Register(app.Registry)
	router := messaging.NewRouter(app.Registry)
	messaging.Handle(router, func(ctx context.Context, e shopevents.InvoiceSent) error {
		_, err := app.UoW.DB(ctx).NewRaw("UPDATE orders SET invoice = ? WHERE id = ?", e.InvoiceID, e.OrderID).Exec(ctx)
		return err
	})
	app.Consume(shopevents.Invoices, "orders", router)
	return routes(app), nil
}

// refusals are the errors that a client can cause.
var refusals = httpjson.Errors{http.StatusNotFound: {sql.ErrNoRows}}

func routes(app *oncebox.App) http.Handler {
	once := httpmw.Idempotency(app.UoW, app.Idempotency, httpmw.Anyone, nil)
	place := func(r *http.Request, _ httpjson.Nothing) (httpjson.Nothing, error) {
		return httpjson.Nothing{}, app.UoW.Do(r.Context(), func(ctx context.Context, u *uow.Unit) error {
			return u.Save(ctx, Place(r.PathValue("id"), 42))
		})
	}
	show := func(r *http.Request, _ httpjson.Nothing) (*Order, error) {
		o := &Order{ID: r.PathValue("id")}
		return o, app.UoW.DB(r.Context()).NewSelect().Model(o).WherePK().Scan(r.Context())
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", once(httpjson.Handler(http.StatusCreated, refusals, place)))
	mux.Handle("GET /orders/{id}", httpjson.Handler(http.StatusOK, refusals, show))
	return mux
}
