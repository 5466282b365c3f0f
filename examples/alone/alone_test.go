package alone_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/examples/alone"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// until runs fn until done holds, and fails if fn ends before.
func until(t *testing.T, fn func(ctx context.Context) error, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tooLong := time.After(2 * time.Minute)
	ended := make(chan error, 1)
	go func() { ended <- fn(ctx) }()
	for !done() {
		select {
		case err := <-ended:
			require.FailNow(t, "it ended by itself", "error: %v", err)
		case <-tooLong:
			require.FailNow(t, "what was waited for did not happen")
		case <-time.After(10 * time.Millisecond):
		}
	}
	cancel()
	require.NoError(t, <-ended)
}

func count(t *testing.T, db *bun.DB, table string) (n int) {
	t.Helper()
	require.NoError(t, db.NewRaw("SELECT count(*) FROM ?", bun.Ident(table)).Scan(t.Context(), &n))
	return n
}

func TestOutbox(t *testing.T) {
	db, broker := pgtest.Open(t).DB, memory.New(nil)
	until(t, func(ctx context.Context) error { return alone.Outbox(ctx, db, broker) },
		func() bool { return len(broker.Messages("mail")) == 1 })
	require.Equal(t, 1, count(t, db, "customers"))
	require.JSONEq(t, `{"to": "ann@example.org"}`, string(broker.Messages("mail")[0].Payload))
}

func TestPayments(t *testing.T) {
	db := pgtest.Open(t).DB
	payments, err := alone.Payments(t.Context(), db, func(user, password string) bool { return user == "ann" && password == "secret" })
	require.NoError(t, err)
	pay := func(password, key string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", nil)
		r.SetBasicAuth("ann", password)
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		payments.ServeHTTP(w, r)
		return w
	}
	require.Equal(t, http.StatusUnauthorized, pay("guessed", "key-1").Code)
	require.Equal(t, http.StatusCreated, pay("secret", "key-1").Code)
	again := pay("secret", "key-1")
	require.Equal(t, http.StatusCreated, again.Code)
	require.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
	require.Equal(t, 1, count(t, db, "payments"))
}

func TestPurgeKeys(t *testing.T) {
	db := pgtest.Open(t).DB
	payments, err := alone.Payments(t.Context(), db, func(string, string) bool { return true })
	require.NoError(t, err)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", nil)
	r.SetBasicAuth("ann", "secret")
	r.Header.Set("Idempotency-Key", "key-1")
	payments.ServeHTTP(httptest.NewRecorder(), r)
	_, err = db.ExecContext(t.Context(), "UPDATE idempotency_keys SET expires_at = now() - interval '1 hour'")
	require.NoError(t, err)
	until(t, func(ctx context.Context) error { alone.PurgeKeys(ctx, db); return nil },
		func() bool { return count(t, db, "idempotency_keys") == 0 })
}

func TestShipping(t *testing.T) {
	db, broker := pgtest.Open(t).DB, memory.New(nil)
	placed := event.Envelope{
		ID: uuid.NewString(), Source: "shop", TenantID: "default", Topic: "order", Type: "order.placed", AggregateType: "order", AggregateID: "o-1",
		AggregateVersion: 1, RoutingKey: "o-1", OccurredAt: time.Now(), ContentType: "application/json", Payload: []byte(`{}`),
	}
	require.NoError(t, broker.Publish(t.Context(), []event.Envelope{placed}))
	shipped := func() bool {
		var n int
		return db.NewRaw("SELECT count(*) FROM shipments").Scan(t.Context(), &n) == nil && n == 1 // no table before it has begun
	}
	until(t, func(ctx context.Context) error { return alone.Shipping(ctx, db, broker) }, shipped)
}

func TestShippingWithoutBroker(t *testing.T) {
	db := pgtest.Open(t).DB
	require.NoError(t, migrations.Up(t.Context(), db, nil))
	_, err := db.ExecContext(t.Context(), `SELECT oncebox_add('order', '{}', 'order.placed', aggregate_type => 'order', aggregate_id => 'o-1',
		source => 'shop')`) // recorded before the program begins
	require.NoError(t, err)
	shipped := func() bool {
		var n int
		return db.NewRaw("SELECT count(*) FROM shipments WHERE order_id = 'o-1'").Scan(t.Context(), &n) == nil && n == 1
	}
	until(t, func(ctx context.Context) error { return alone.ShippingWithoutBroker(ctx, db) }, shipped)
}
