// Package invoices is the service that writes an invoice for each order. It handles order.placed of the service orders, and sends invoice.sent.
package invoices

import (
	"context"
	"net/http"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/examples/twoservices/shopevents"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/serve"
	"github.com/oncebox/oncebox/uow"
)

// Source is the name of this service in its events.
const Source = "invoices"

// Invoice is an aggregate.
type Invoice struct {
	event.Recorder `bun:"-"`

	bun.BaseModel `bun:"table:invoices"`
	ID            string `bun:",pk"`
	OrderID       string
	Total         int64
	Version       int64
}

func (i *Invoice) AggregateType() string   { return shopevents.Invoices }
func (i *Invoice) AggregateID() string     { return i.ID }
func (i *Invoice) AggregateVersion() int64 { return i.Version }

// Write makes the invoice of an order.
func Write(order shopevents.OrderPlaced) *Invoice {
	i := &Invoice{ID: "invoice-of-" + order.OrderID, OrderID: order.OrderID, Total: order.Total}
	i.Record(shopevents.InvoiceSent{InvoiceID: i.ID, OrderID: i.OrderID})
	return i
}

const tables = `CREATE TABLE IF NOT EXISTS invoices
	(id text PRIMARY KEY, order_id text NOT NULL, total bigint NOT NULL, version bigint NOT NULL)`

// Service returns the service.
func Service() serve.Service {
	return serve.Service{
		Source: Source, Setup: setup, Migrate: serve.Tables(tables),
		Defaults: serve.Config{Migrate: true, LogFormat: "json"},
	}
}

// setup consumes the orders. The service answers no requests.
func setup(_ context.Context, app *oncebox.App) (http.Handler, error) {
	shopevents.Register(app.Registry)
	router := messaging.NewRouter(app.Registry)
	messaging.Handle(router, func(ctx context.Context, e shopevents.OrderPlaced) error {
		return app.UoW.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
			return u.Save(ctx, Write(e)) // in the transaction that notes that the message was handled
		})
	})
	app.Consume(shopevents.Orders, "invoices", router)
	return nil, nil
}
