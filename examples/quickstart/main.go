// Command quickstart shows the whole framework in one file. It needs nothing but Go: PostgreSQL is the one on this
// machine, or is fetched once, and the broker lives in this process.
//
//	go run ./examples/quickstart
//
// Read it from top to bottom: the domain, the handler of its event, the HTTP interface, the wiring, and then a story in
// which everything goes wrong once.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/go-chi/chi/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/uow"
)

// ---- the domain: imports nothing but package event ----

// OrderPlaced is what happened.
type OrderPlaced struct {
	OrderID    string `json:"order_id"`
	Customer   string `json:"customer"`
	TotalCents int64  `json:"total_cents"`
}

// EventType is the event's name for ever, whatever becomes of the Go type.
func (OrderPlaced) EventType() string { return "order.placed" }

// Order is the aggregate. It records what happens to it.
type Order struct {
	event.Recorder `bun:"-"`
	ID             string `bun:",pk"`
	Customer       string
	TotalCents     int64
}

// AggregateType, AggregateID and AggregateVersion make it an event.Aggregate.
func (*Order) AggregateType() string   { return "order" }
func (o *Order) AggregateID() string   { return o.ID }
func (*Order) AggregateVersion() int64 { return 0 } // as stored: a new order has none yet

// Place makes an order.
func Place(id, customer string, cents int64) *Order {
	o := &Order{ID: id, Customer: customer, TotalCents: cents}
	o.Record(OrderPlaced{OrderID: id, Customer: customer, TotalCents: cents})
	return o
}

// ---- the consumer: keeps what each customer has spent ----

// spending handles OrderPlaced. Its statement runs in the transaction that also remembers the message.
type spending struct {
	units    *uow.Manager
	failures atomic.Int32 // how often it is to fail, for the story
}

func (s *spending) orderPlaced(ctx context.Context, e OrderPlaced) error {
	_, err := s.units.DB(ctx).NewRaw(`INSERT INTO spending (customer, orders, cents) VALUES (?, 1, ?)
		ON CONFLICT (customer) DO UPDATE SET orders = spending.orders + 1, cents = spending.cents + excluded.cents`,
		e.Customer, e.TotalCents).Exec(ctx)
	if s.failures.Add(-1) >= 0 {
		return errors.New("the disk is on fire") // rolls back what was done above
	}
	return err
}

// ---- the HTTP interface: answers are stored with the work ----

func routes(units *uow.Manager, keys *idempotency.Store) http.Handler {
	scope := func(*http.Request) (idempotency.Scope, error) { return idempotency.Anonymous("default"), nil }
	once := httpmw.Idempotency(units, keys, scope, &httpmw.IdempotencyConfig{Required: true})

	r := chi.NewRouter()
	r.With(once).Post("/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Customer   string `json:"customer"`
			TotalCents int64  `json:"total_cents"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		err := units.Do(r.Context(), func(ctx context.Context, u *uow.Unit) error {
			order := Place(chi.URLParam(r, "id"), in.Customer, in.TotalCents)
			u.Track(order) // its events reach the outbox in this transaction
			_, err := u.DB().NewInsert().Model(order).Exec(ctx)
			return err
		})
		if err != nil {
			http.Error(w, "the order was not placed", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]any{"id": chi.URLParam(r, "id"), "total_cents": in.TotalCents})
	})
	return r
}

// ---- the wiring ----

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	postgres, err := devenv.Postgres(ctx, &devenv.Options{Out: os.Stdout})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, postgres.Stop()) }()

	cfg, err := config.FromEnv()
	if err != nil {
		return err
	}
	cfg.DatabaseURL, cfg.Schema = postgres.URL, "oncebox_quickstart"
	cfg.UoW.Source = "quickstart"
	cfg.Logger = slog.New(slog.DiscardHandler) // the story tells what happens
	db, err := config.OpenDB(ctx, cfg)
	if err != nil {
		return err
	}
	defer db.Close()

	broker := memory.New(nil)
	defer broker.Close()
	app, err := oncebox.New(db, broker, cfg)
	if err != nil {
		return err
	}
	event.Register[OrderPlaced](app.Registry)

	consumer := &spending{units: app.UoW}
	router := messaging.NewRouter(app.Registry)
	messaging.Handle(router, consumer.orderPlaced)
	app.Consume("order", "spending", router)

	if err := tables(ctx, app, db); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx) }()

	server := httptest.NewServer(routes(app.UoW, app.Idempotency))
	defer server.Close()
	s := &story{db: db, app: app, broker: broker, consumer: consumer, url: server.URL}
	err = s.tell(ctx)
	cancel()
	return errors.Join(err, <-ended)
}

// tables makes those of the framework and those of this example, in a fresh schema.
func tables(ctx context.Context, app *oncebox.App, db *bun.DB) error {
	if _, err := db.ExecContext(ctx, `DROP SCHEMA IF EXISTS oncebox_quickstart CASCADE`); err != nil {
		return err
	}
	if err := app.Migrate(ctx); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, `
		CREATE TABLE orders (id text PRIMARY KEY, customer text NOT NULL, total_cents bigint NOT NULL);
		CREATE TABLE spending (customer text PRIMARY KEY, orders int NOT NULL, cents bigint NOT NULL)`)
	return err
}
