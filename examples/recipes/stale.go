package recipes

import (
	"context"
	"log/slog"
	"time"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// PriceSet is an event of another service.
type PriceSet struct {
	SKU   string
	Cents int64
}

// EventType names the event on the wire.
func (PriceSet) EventType() string { return "price.set" }

// ConsumePrices keeps the latest prices. It skips a price that is older than an hour: after a long outage old prices
// would only delay the new ones.
func ConsumePrices(app *oncebox.App, slow func(eventType string, took time.Duration)) {
	timed := func(next messaging.Handler) messaging.Handler {
		return messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
			began := time.Now()
			err := next.Handle(ctx, m)
			if took := time.Since(began); took > time.Second {
				slow(m.Type, took)
			}
			return err
		})
	}
	router := messaging.NewRouter(app.Registry)
	messaging.Handle(router, func(ctx context.Context, e PriceSet) error {
		u := uow.MustFromContext(ctx)
		_, err := u.DB().NewRaw("INSERT INTO price VALUES (?, ?) ON CONFLICT (sku) DO UPDATE SET cents = excluded.cents", e.SKU, e.Cents).Exec(ctx)
		return err
	})
	app.Consume("price", "prices", router, inbox.Use(messaging.Logging(slog.Default()), messaging.MaxAge(time.Hour), timed))
}
