package oncebox_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/migrations"
	"github.com/oncebox/oncebox/outbox"
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
		var pcfg pulsar.Config
		if err := config.Env("ONCEBOX_PULSAR_", &pcfg); err != nil {
			return err
		}
		broker, err := pulsar.Connect(ctx, &pcfg)
		if err != nil {
			return err
		}
		app, err := oncebox.New(db, broker, cfg)
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

func Example_ownTransaction() {
	var ctx context.Context
	var db *bun.DB
	store := outbox.NewStore(db, &outbox.Config{Source: "shop"})
	err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		// ... statements of your own ...
		_, err := store.Add(ctx, tx, "mail", map[string]string{"to": "ann@example.org"})
		return err
	})
	store.Wake()
	fmt.Println(err)
}

func Example_middlewareAlone() {
	var ctx context.Context
	run := func() error {
		db, err := config.OpenDB(ctx, config.Config{DatabaseURL: os.Getenv("DATABASE_URL")})
		if err != nil {
			return err
		}
		if err := migrations.Up(ctx, db, nil); err != nil { // the tables
			return err
		}
		units, keys := uow.New(db, nil), idempotency.NewStore(nil)
		scope := func(r *http.Request) (idempotency.Scope, error) {
			user, _, _ := r.BasicAuth() // nobody: 401
			return idempotency.Scope{Principal: user}, nil
		}
		r := chi.NewRouter()
		r.With(httpmw.Idempotency(units, keys, scope, &httpmw.IdempotencyConfig{Required: true})).
			Post("/payments", func(w http.ResponseWriter, r *http.Request) {
				tx := units.DB(r.Context()) // the transaction in which the answer is stored
				if _, err := tx.NewRaw("INSERT INTO payments DEFAULT VALUES").Exec(r.Context()); err != nil {
					http.Error(w, "failed", http.StatusInternalServerError) // rolled back, the key is free
					return
				}
				w.WriteHeader(http.StatusCreated)
			})
		go func() {
			for {
				if _, err := keys.Purge(ctx, db); err != nil {
					slog.WarnContext(ctx, "expired keys stay until the next turn", "error", err)
				}
				select {
				case <-time.After(time.Hour):
				case <-ctx.Done():
					return
				}
			}
		}()
		return http.ListenAndServe(":8080", r)
	}
	fmt.Println(run())
}

func Example_consumerAlone() {
	var ctx context.Context
	var db *bun.DB
	run := func() error {
		broker, err := pulsar.Connect(ctx, &pulsar.Config{URL: "pulsar://localhost:6650"})
		if err != nil {
			return err
		}
		if err := migrations.Up(ctx, db, nil); err != nil { // the tables
			return err
		}
		units := uow.New(db, nil)
		box := inbox.New(units, nil)
		ship := func(ctx context.Context, m *messaging.Message) error {
			tx := units.DB(ctx) // the transaction in which the message is handled, once
			_, err := tx.NewRaw("INSERT INTO shipments VALUES (?)", m.AggregateID).Exec(ctx)
			return err
		}
		if err := box.Consume("order", "shipping", messaging.HandlerFunc(ship)); err != nil {
			return err
		}
		return box.Run(ctx, broker) // receives, tries again what failed, and cleans, until ctx is done
	}
	fmt.Println(run())
}
