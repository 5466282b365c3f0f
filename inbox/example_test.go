package inbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/localpg"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/migrations"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
	"github.com/oncebox/oncebox/uow"
)

// The consumer alone, around any function of a message: the broker delivers twice, the stock changes once.
func ExampleInbox_Wrap() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	db, closeDB := exampleDatabase(ctx)
	defer closeDB()
	must(migrations.Up(ctx, db, &migrations.Config{Logger: slog.New(slog.DiscardHandler)}))
	_, err := db.ExecContext(ctx, "CREATE TABLE stock AS SELECT 'apple' AS sku, 10 AS pieces")
	must(err)

	broker := memory.New(nil)
	defer broker.Close()
	subscription := messaging.Subscription{Topic: "stock", Name: "warehouse"}
	receiver, err := broker.Subscribe(ctx, subscription)
	must(err)

	units := uow.New(db, nil)
	box := inbox.New(units, nil)
	once := box.Wrap("warehouse", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		fmt.Println("handling", m.ID)
		_, err := units.DB(ctx).NewRaw("UPDATE stock SET pieces = pieces - 1 WHERE sku = 'apple'").Exec(ctx)
		return err
	}))
	// Only for this example: stops when three deliveries are settled.
	deliveries := 0
	counted := messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		err := once.Handle(ctx, m)
		if deliveries++; deliveries == 3 {
			stop()
		}
		return err
	})

	first := event.Envelope{ID: "sale-1", Type: "sold", Source: "shop", Topic: "stock", RoutingKey: "apple"}
	second := first
	second.ID = "sale-2"
	must(broker.Publish(ctx, []event.Envelope{first, first, second}))
	must(messaging.NewConsumer(receiver, counted, nil).Run(ctx))

	var pieces int
	must(db.NewRaw("SELECT pieces FROM stock").Scan(context.Background(), &pieces))
	fmt.Println("pieces left:", pieces)
	// Output:
	// handling sale-1
	// handling sale-2
	// pieces left: 8
}

// Who placed an order and asks for the summary at once finds the order in it.
func ExampleInbox_Await() {
	ctx, stop := context.WithCancel(context.Background())
	db, closeDB := exampleDatabase(ctx)
	defer closeDB()
	relayed := make(chan error)
	defer func() { stop(); must(<-relayed) }()
	must(migrations.Up(ctx, db, &migrations.Config{Logger: slog.New(slog.DiscardHandler)}))
	_, err := db.ExecContext(ctx, "CREATE TABLE summary AS SELECT 0 AS orders")
	must(err)

	store := outbox.NewStore(db, nil)
	units := uow.New(db, &uow.Config{Source: "shop"}, store)
	box := inbox.New(units, nil)
	summary := box.Wrap("summary", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		_, err := units.DB(ctx).NewRaw("UPDATE summary SET orders = orders + 1").Exec(ctx)
		return err
	}))
	relay, err := projector.New(messaging.Direct(summary), nil, store)
	must(err)
	go func() { relayed <- relay.Run(ctx) }()

	// The token travels to the client and back, in a header or a cookie.
	var token uow.Token
	must(units.Do(ctx, func(_ context.Context, u *uow.Unit) error { return u.Add("order", []byte("{}")) }, uow.WithToken(&token)))

	bounded, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	must(box.Await(bounded, "summary", token))
	var orders int
	must(db.NewRaw("SELECT orders FROM summary").Scan(ctx, &orders))
	fmt.Println("orders:", orders)
	// Output: orders: 1
}

// exampleDatabase opens a schema of its own in a development database.
func exampleDatabase(ctx context.Context) (*bun.DB, func()) {
	local, err := localpg.Start(ctx, localpg.Output(io.Discard))
	must(err)
	pool, err := sql.Open("pgx", local.URL)
	must(err)
	pool.SetMaxOpenConns(4)
	return bun.NewDB(pool, pgdialect.New()), func() {
		must(pool.Close())
		must(local.Close())
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
