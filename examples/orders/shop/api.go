package shop

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/httpmw/httpjson"
	"github.com/oncebox/oncebox/httpmw/policy"
	"github.com/oncebox/oncebox/uow"
)

// mount adds the routes. Their handlers do not deal with keys, retries or the outbox: they open a unit of work, which under the middleware is a part of
// the middleware's transaction. The middlewares come in this order because keys belong to a tenant.
func (s *service) mount(r chi.Router, app *oncebox.App) {
	tenant := httpmw.Tenant(func(r *http.Request) (string, error) { return cmp.Or(r.Header.Get("X-Tenant-Id"), s.tenant), nil })
	rules := &httpmw.IdempotencyConfig{Required: true, RequireTenant: true}
	once := httpmw.Idempotency(app.UoW, app.Idempotency, httpmw.Anyone, rules)
	r.Mount(httpmw.DefaultProblemBase, policy.Handler(app.Idempotency, rules))

	r.Group(func(r chi.Router) {
		r.Use(tenant)
		r.With(once).Post("/orders", s.place)
		r.With(once).Post("/orders/{id}/items", s.addItem)
		r.With(once).Post("/orders/{id}/cancel", s.cancel)
		r.Get("/orders/{id}", s.order)
		r.Get("/customers/{id}/summary", s.summary)
	})
}

func (s *service) place(w http.ResponseWriter, r *http.Request) {
	var in placeInput
	if err := readJSON(r, &in); err != nil {
		s.refuse(w, r, err)
		return
	}
	s.change(w, r, http.StatusCreated, func(context.Context, *uow.Unit) (*Order, error) {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		return PlaceOrder(id.String(), in.CustomerID, in.items())
	})
}

func (s *service) addItem(w http.ResponseWriter, r *http.Request) {
	var in itemInput
	if err := readJSON(r, &in); err != nil {
		s.refuse(w, r, err)
		return
	}
	s.changeExisting(w, r, func(o *Order) error { return o.AddItem(in.item()) })
}

func (s *service) cancel(w http.ResponseWriter, r *http.Request) {
	s.changeExisting(w, r, (*Order).Cancel)
}

// changeExisting loads the order in the unit: if another request changes the order meanwhile, the unit runs
// everything again.
func (s *service) changeExisting(w http.ResponseWriter, r *http.Request, change func(*Order) error) {
	s.change(w, r, http.StatusOK, func(ctx context.Context, u *uow.Unit) (*Order, error) {
		id, err := orderID(r)
		if err != nil {
			return nil, err
		}
		order, err := findOrder(ctx, u.DB(), id)
		if err != nil {
			return nil, err
		}
		return order, change(order)
	})
}

// change runs one use case and answers with the changed order.
func (s *service) change(w http.ResponseWriter, r *http.Request, status int, useCase func(context.Context, *uow.Unit) (*Order, error)) {
	var changed orderView
	err := s.units.Do(r.Context(), func(ctx context.Context, u *uow.Unit) error {
		order, err := useCase(ctx, u)
		if err != nil {
			return err
		}
		changed = viewOf(order)
		return saveOrder(ctx, u, order)
	})
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	slog.InfoContext(r.Context(), "orders: order stored", "order", changed.ID, "status", status)
	if status == http.StatusCreated {
		w.Header().Set("Location", "/orders/"+changed.ID)
	}
	httpjson.Write(w, r, status, changed)
}

func (s *service) order(w http.ResponseWriter, r *http.Request) {
	id, err := orderID(r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	order, err := findOrder(r.Context(), s.units.DB(r.Context()), id)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	httpjson.Write(w, r, http.StatusOK, viewOf(order))
}

func (s *service) summary(w http.ResponseWriter, r *http.Request) {
	id, err := customerID(r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	summary, err := findSummary(r.Context(), s.units.DB(r.Context()), id)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	httpjson.Write(w, r, http.StatusOK, summary)
}

// orderView is an order as clients see it.
type orderView struct {
	ID         string `json:"id"`
	Status     Status `json:"status"`
	TotalCents int64  `json:"total_cents"`
	Version    int64  `json:"version"`
}

func viewOf(o *Order) orderView {
	return orderView{ID: o.ID, Status: o.Status, TotalCents: o.TotalCents, Version: o.nextVersion()}
}

// orderID returns the id in the path. A text that cannot be an id counts as the id of no order.
func orderID(r *http.Request) (string, error) {
	id := chi.URLParam(r, "id")
	if parsed, err := uuid.Parse(id); err != nil || parsed.String() != id {
		return "", ErrNotFound
	}
	return id, nil
}

// customerID returns the id in the path. It may be any text, also with slashes, which chi leaves escaped.
func customerID(r *http.Request) (string, error) {
	id := chi.URLParam(r, "id")
	if r.URL.RawPath != "" {
		unescaped, err := url.PathUnescape(id)
		if err != nil {
			return "", badInput("the customer id is not escaped as a path: %v", err)
		}
		id = unescaped
	}
	if err := event.ValidateIdentifier("customer_id", id); err != nil {
		return "", badInput("%v", err)
	}
	return id, nil
}
