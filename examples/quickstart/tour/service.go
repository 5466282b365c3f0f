// Package tour shows what goes wrong without an outbox, and what does not with oncebox, with whichever broker the program is built with.
//
// This file is the service: the domain, the handler of its event, the HTTP interface. main.go wires it, kill.go has the processes that are
// killed, story.go what else goes wrong, gate.go what happens at the broker, serve.go the requests to try, console.go the page for operators.
//
// Read first: service.go:routes, then main.go:run.
package tour

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/go-chi/chi/v5"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// service is the name under which events are announced.
const service = "quickstart"

// topic is where the events of orders are published: by default it is the type of the aggregate.
const topic = "order"

// ---- the domain: imports nothing but package event ----

// OrderPlaced is what happened.
type OrderPlaced struct {
	OrderID    string `json:"order_id"`
	Customer   string `json:"customer"`
	TotalCents int64  `json:"total_cents"`
}

// EventType returns the event's name, which must never change, even if the Go type is renamed.
func (OrderPlaced) EventType() string { return "order.placed" }

// Order is the aggregate. It records what happens to it.
type Order struct {
	event.Recorder `bun:"-"`
	ID             string `bun:",pk"`
	Customer       string
	TotalCents     int64
	Version        int64 // as stored
}

// AggregateType, AggregateID and AggregateVersion make it an event.Aggregate.
func (*Order) AggregateType() string     { return topic }
func (o *Order) AggregateID() string     { return o.ID }
func (o *Order) AggregateVersion() int64 { return o.Version }

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
	failures atomic.Int32 // how often the handler still fails, for the story
}

func (s *spending) orderPlaced(ctx context.Context, e OrderPlaced) error {
	if e.Customer == "nobody" {
		return messaging.Permanent(errors.New("nobody is no customer")) // given up: the console shows it
	}
	_, err := s.units.DB(ctx).NewRaw(`INSERT INTO spending (customer, orders, cents) VALUES (?, 1, ?)
		ON CONFLICT (customer) DO UPDATE SET orders = spending.orders + 1, cents = spending.cents + excluded.cents`,
		e.Customer, e.TotalCents).Exec(ctx)
	if s.failures.Add(-1) >= 0 {
		return errors.New("the disk is on fire") // rolls back what was done above
	}
	return err
}

// ---- the HTTP interface: answers are stored with the work ----

func routes(units *uow.Manager, keys *idempotency.Store) chi.Router {
	once := httpmw.Idempotency(units, keys, httpmw.Anyone, &httpmw.IdempotencyConfig{Required: true})

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
			// Its event reaches the outbox in the same transaction.
			return u.Save(ctx, Place(chi.URLParam(r, "id"), in.Customer, in.TotalCents))
		})
		switch {
		case errors.Is(err, uow.ErrExists):
			http.Error(w, "there is an order with this id", http.StatusConflict)
		case err != nil:
			http.Error(w, "the order was not placed", http.StatusInternalServerError)
		default:
			answer(w, http.StatusCreated, map[string]any{"id": chi.URLParam(r, "id"), "total_cents": in.TotalCents})
		}
	})
	r.Get("/spending/{customer}", func(w http.ResponseWriter, r *http.Request) {
		var row struct{ Orders, Cents int64 }
		err := units.DB(r.Context()).NewRaw(`SELECT coalesce(sum(orders), 0) AS orders, coalesce(sum(cents), 0) AS cents FROM spending
			WHERE customer = ?`, chi.URLParam(r, "customer")).Scan(r.Context(), &row)
		if err != nil {
			http.Error(w, "the database did not answer", http.StatusInternalServerError)
			return
		}
		answer(w, http.StatusOK, map[string]any{"orders": row.Orders, "cents": row.Cents})
	})
	return r
}

func answer(w http.ResponseWriter, status int, body any) {
	encoded, err := json.Marshal(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "%s\n", encoded)
}
