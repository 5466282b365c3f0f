package oncebox_test

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// Pages of docs quote this file, and a test compares the two.

type OrderPlaced struct {
	OrderID string `json:"order_id"`
	Total   int64  `json:"total"`
}

func (OrderPlaced) EventType() string { return "order.placed" }

type Order struct {
	event.Recorder `bun:"-"`
	ID             string `bun:",pk"`
	Total          int64
	Version        int64
}

func (o *Order) AggregateType() string   { return "order" }
func (o *Order) AggregateID() string     { return o.ID }
func (o *Order) AggregateVersion() int64 { return o.Version }

func PlaceOrder(id string, total int64) *Order {
	o := &Order{ID: id, Total: total}
	o.Record(OrderPlaced{OrderID: id, Total: total})
	return o
}

func Example_service() {
	run := func() error {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		cfg, err := config.FromEnv() // ONCEBOX_DATABASE_URL, ONCEBOX_SOURCE, ...
		if err != nil {
			return err
		}
		db, err := config.OpenDB(ctx, cfg)
		if err != nil {
			return err
		}
		app, err := oncebox.New(db, nil, cfg) // without a broker; with Pulsar, the second argument is what pulsar.Connect returns
		if err != nil {
			return err
		}
		event.Register[OrderPlaced](app.Registry)

		router := messaging.NewRouter(app.Registry)
		messaging.Handle(router, func(ctx context.Context, e OrderPlaced) error {
			_, err := app.UoW.DB(ctx).NewRaw("UPDATE sales SET total = total + ?", e.Total).Exec(ctx)
			return err
		})
		app.Consume("order", "sales", router)

		if err := app.Migrate(ctx); err != nil {
			return err
		}
		return app.Run(ctx) // until SIGTERM
	}
	fmt.Println(run())
}

func Example_unitOfWork() {
	var ctx context.Context
	var units *uow.Manager
	err := units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		return u.Save(ctx, PlaceOrder("o-1", 42)) // its events reach the outbox in this transaction
	})
	fmt.Println(err)
}
