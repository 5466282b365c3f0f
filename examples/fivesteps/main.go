// Command fivesteps is a whole service in one file: the five steps of the README. It needs Go on Linux or macOS, and
// downloads the programs of PostgreSQL if there are none. It ends by itself.
//
//	go run ./examples/fivesteps
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/localpg"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/uow"
)

// 1. The domain records what happens.

type OrderPlaced struct {
	OrderID string `json:"order_id"`
	Total   int64  `json:"total"`
}

func (OrderPlaced) EventType() string { return "order.placed" }

type Order struct {
	event.Recorder `bun:"-"`
	ID             string `bun:",pk"`
	Total          int64
	Version        int64 // as stored: Save raises it by the number of recorded events, the domain never sets it
}

func (o *Order) AggregateType() string   { return "order" }
func (o *Order) AggregateID() string     { return o.ID }
func (o *Order) AggregateVersion() int64 { return o.Version }

func PlaceOrder(id string, total int64) *Order {
	o := &Order{ID: id, Total: total}
	o.Record(OrderPlaced{OrderID: id, Total: total})
	return o
}

func run(ctx context.Context) (err error) {
	// 2. A database, a broker, and oncebox between them.
	postgres, err := localpg.Start(ctx) // in production: cfg.DatabaseURL is set by ONCEBOX_DATABASE_URL
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, postgres.Close()) }()
	cfg, err := config.FromEnv()
	if err != nil {
		return err
	}
	cfg.DatabaseURL, cfg.UoW.Source = postgres.URL, "shop"
	db, err := config.OpenDB(ctx, cfg)
	if err != nil {
		return err
	}
	defer db.Close()
	app, err := oncebox.New(db, memory.New(nil), cfg) // in production: pulsar.Connect, or nil: the database carries the events
	if err != nil {
		return err
	}
	event.Register[OrderPlaced](app.Registry)
	if err := createTables(ctx, app, db); err != nil {
		return err
	}

	// 3. A request saves the order. Its event and its answer are stored in the same transaction.
	placeOrder := func(w http.ResponseWriter, r *http.Request) {
		err := app.UoW.Do(r.Context(), func(ctx context.Context, u *uow.Unit) error {
			return u.Save(ctx, PlaceOrder(r.PathValue("id"), 42))
		})
		if err != nil {
			slog.ErrorContext(r.Context(), "place the order", "error", err)
			http.Error(w, "the order was not placed", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}
	anyone := func(*http.Request) (idempotency.Scope, error) { return idempotency.Anonymous("default"), nil } // all clients share their keys
	once := httpmw.Idempotency(app.UoW, app.Idempotency, anyone, nil)
	routes := http.NewServeMux()
	routes.Handle("POST /orders/{id}", once(http.HandlerFunc(placeOrder)))

	// 4. A consumer handles the event, once, in a transaction of its own.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	router := messaging.NewRouter(app.Registry)
	messaging.Handle(router, func(ctx context.Context, e OrderPlaced) error {
		u := uow.MustFromContext(ctx)
		u.AfterCommit(func(context.Context) { stop() }) // one event is enough for this program
		_, err := u.DB().NewRaw("UPDATE sales SET total = total + ?", e.Total).Exec(ctx)
		return err
	})
	app.Consume("order", "sales", router)

	// 5. Run: the event waits in the database until it is published and handled.
	if err := orderTwice(ctx, routes); err != nil {
		return err
	}
	if err := app.Run(ctx); err != nil { // until ctx is done
		return err
	}
	var total int64
	err = db.NewRaw("SELECT total FROM sales").Scan(context.WithoutCancel(ctx), &total)
	fmt.Println("sold for", total)
	return err
}

func createTables(ctx context.Context, app *oncebox.App, db *bun.DB) error {
	if err := app.Migrate(ctx); err != nil { // oncebox's own tables
		return err
	}
	_, err := db.ExecContext(ctx, `
		CREATE TABLE orders (id text PRIMARY KEY, total bigint NOT NULL, version bigint NOT NULL);
		CREATE TABLE sales (total bigint NOT NULL);
		INSERT INTO sales VALUES (0)`)
	return err
}

// orderTwice is a client that repeats its request, as it would after a lost answer.
func orderTwice(ctx context.Context, routes http.Handler) error {
	server := httptest.NewServer(routes)
	defer server.Close()
	for range 2 {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/orders/o-1", nil)
		if err != nil {
			return err
		}
		req.Header.Set("Idempotency-Key", "key-1")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		fmt.Println("POST /orders/o-1:", resp.Status, "replayed:", resp.Header.Get("Idempotent-Replayed") == "true")
	}
	return nil
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "fivesteps:", err)
		os.Exit(1)
	}
}
