// Command fivesteps is a whole service in one file: the five steps of the README. It needs Go on Linux or macOS, and
// downloads the programs of PostgreSQL if there are none. It runs until Ctrl-C.
//
//	go run ./examples/fivesteps
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/httpmw/httpjson"
	"github.com/oncebox/oncebox/localpg"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/serve"
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

// 2. A request saves the order. Its event and its answer are stored in the same transaction.

func routes(app *oncebox.App) http.Handler {
	placeOrder := func(r *http.Request, _ httpjson.Nothing) (httpjson.Nothing, error) {
		return httpjson.Nothing{}, app.UoW.Do(r.Context(), func(ctx context.Context, u *uow.Unit) error {
			return u.Save(ctx, PlaceOrder(r.PathValue("id"), 42))
		})
	}
	showSales := func(w http.ResponseWriter, r *http.Request) {
		var total int64
		if err := app.UoW.DB(r.Context()).NewRaw("SELECT total FROM sales").Scan(r.Context(), &total); err != nil {
			http.Error(w, "the sales cannot be read", http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "sold for", total)
	}
	once := httpmw.Idempotency(app.UoW, app.Idempotency, httpmw.Anyone, nil) // all clients share their keys
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", once(httpjson.Handler(http.StatusCreated, nil, placeOrder)))
	mux.HandleFunc("GET /sales", showSales)
	return mux
}

// 3. A consumer handles the event, once, in a transaction of its own.

func sales(app *oncebox.App) messaging.Handler {
	router := messaging.NewRouter(app.Registry)
	messaging.Handle(router, func(ctx context.Context, e OrderPlaced) error {
		_, err := app.UoW.DB(ctx).NewRaw("UPDATE sales SET total = total + ?", e.Total).Exec(ctx) // in the transaction of the message
		return err
	})
	return router
}

// 4. Setup connects both with oncebox, and tables are those of this program.

func setup(_ context.Context, app *oncebox.App) (http.Handler, error) {
	event.Register[OrderPlaced](app.Registry)
	app.Consume("order", "sales", sales(app))
	return routes(app), nil
}

const tables = `
	CREATE TABLE orders (id text PRIMARY KEY, total bigint NOT NULL, version bigint NOT NULL);
	CREATE TABLE sales (total bigint NOT NULL);
	INSERT INTO sales VALUES (0)`

// 5. Serve: answer requests, publish and consume until SIGTERM.

func main() {
	postgres, err := localpg.Start(context.Background()) // only to try it: a server has a database, in ONCEBOX_DATABASE_URL
	if err != nil {
		fmt.Fprintln(os.Stderr, "fivesteps:", err)
		os.Exit(1)
	}
	serve.Main(serve.Service{
		Source:   "shop",
		Setup:    setup,
		Migrate:  serve.Tables(tables),
		Defaults: serve.Config{Migrate: true}, // or "oncebox migrate up" makes the tables of oncebox
		Configure: func(app *config.Config, _ *serve.Config) error {
			app.DatabaseURL = postgres.URL
			return nil
		},
		Close: postgres.Close,
	})
}
