package httpmw_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

// The middleware alone: nothing else of the framework is used, and the handler writes plain SQL in the middleware's
// transaction.
func ExampleIdempotency() {
	db, done := exampleDB("CREATE TABLE payments (id serial PRIMARY KEY, cents int)")
	defer done()

	units, keys := uow.New(db, nil), idempotency.NewStore(nil)
	once := httpmw.Idempotency(units, keys, func(r *http.Request) (idempotency.Scope, error) {
		user, _, _ := r.BasicAuth() // who authentication found
		return idempotency.Scope{Principal: user}, nil
	}, &httpmw.IdempotencyConfig{Required: true})

	r := chi.NewRouter()
	r.With(once).Post("/payments", func(w http.ResponseWriter, r *http.Request) {
		var payment struct {
			Cents int `json:"cents"`
		}
		if err := json.NewDecoder(r.Body).Decode(&payment); err != nil || payment.Cents <= 0 {
			http.Error(w, "cents must be positive", http.StatusUnprocessableEntity) // stored, and nothing else is
			return
		}
		var id int
		tx := units.DB(r.Context())
		if err := tx.QueryRowContext(r.Context(), "INSERT INTO payments (cents) VALUES (?) RETURNING id", payment.Cents).Scan(&id); err != nil {
			http.Error(w, "failed", http.StatusInternalServerError) // rolled back, the key is free again
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "payment %d", id)
	})
	server := httptest.NewServer(r)
	defer server.Close()

	pay := func(user, key, body string) {
		req, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, server.URL+"/payments", strings.NewReader(body))
		req.SetBasicAuth(user, "")
		req.Header.Set("Content-Type", "application/json")
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		show(server.Client().Do(req))
	}
	pay("ann", "8e03", `{"cents": 500}`)
	pay("ann", `"8e03"`, `{"cents":500}`) // the same, as another client spells it
	pay("bob", "8e03", `{"cents": 500}`)  // somebody else's key
	pay("ann", "8e03", `{"cents": 900}`)
	pay("ann", "8e04", `{"cents": 0}`)
	pay("ann", "8e04", `{"cents": 0}`)
	pay("ann", "", `{"cents": 500}`)
	// Output:
	// 201 payment 1
	// 201 payment 1 (replayed)
	// 201 payment 2
	// 422 This Idempotency-Key was used with another request
	// 422 cents must be positive
	// 422 cents must be positive (replayed)
	// 400 Idempotency-Key is missing
}

type orderPlaced struct {
	OrderID string `json:"order_id"`
}

func (orderPlaced) EventType() string { return "order.placed" }

type order struct {
	event.Recorder `bun:"-"`
	ID             string `bun:",pk"`
	Version        int64
}

func (*order) AggregateType() string     { return "order" }
func (o *order) AggregateID() string     { return o.ID }
func (o *order) AggregateVersion() int64 { return o.Version }

// With a unit of work: the handler's own units.Do becomes a savepoint in the middleware's transaction, so that the
// order, its event and the answer commit together.
func ExampleIdempotency_unitOfWork() {
	db, done := exampleDB("CREATE TABLE orders (id text PRIMARY KEY, version bigint NOT NULL)")
	defer done()

	registry := event.NewRegistry()
	event.Register[orderPlaced](registry)
	units := uow.New(db, &uow.Config{Registry: registry, Source: "shop"}, outbox.NewStore(db, nil))
	once := httpmw.Idempotency(units, idempotency.NewStore(nil), func(r *http.Request) (idempotency.Scope, error) {
		return idempotency.Anonymous(event.TenantFrom(r.Context())), nil // this shop knows no users, on purpose
	}, nil)

	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		err := units.Do(r.Context(), func(ctx context.Context, u *uow.Unit) error {
			o := &order{ID: id}
			o.Record(orderPlaced{OrderID: id})
			return u.Save(ctx, o)
		})
		if err != nil {
			http.Error(w, "failed", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "placed ", id)
	})
	tenant := httpmw.Tenant(func(r *http.Request) (string, error) { return r.Header.Get("X-Tenant-Id"), nil })
	server := httptest.NewServer(tenant(httpmw.Metadata()(once(mux))))
	defer server.Close()

	for range 3 {
		req, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, server.URL+"/orders/7", nil)
		req.Header.Set("X-Tenant-Id", "acme")
		req.Header.Set("Idempotency-Key", "k1")
		show(server.Client().Do(req))
	}
	var orders, events int
	_ = db.QueryRow("SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM outbox_messages)").Scan(&orders, &events)
	fmt.Println("orders:", orders, "events:", events)
	// Output:
	// 201 placed 7
	// 201 placed 7 (replayed)
	// 201 placed 7 (replayed)
	// orders: 1 events: 1
}

// show prints an answer as a client reads it.
func show(resp *http.Response, err error) {
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	text := strings.TrimSpace(string(body))
	if resp.Header.Get("Content-Type") == "application/problem+json" {
		var problem struct {
			Title string `json:"title"`
		}
		_ = json.Unmarshal(body, &problem)
		text = problem.Title
	}
	if resp.Header.Get("Idempotent-Replayed") == "true" {
		text += " (replayed)"
	}
	fmt.Fprintln(os.Stdout, resp.StatusCode, text)
}
