package oncetest_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/oncetest"
)

// newRoutes is the service's HTTP side. It takes the App, so that main and the tests call it after newService.
func newRoutes(app *oncebox.App) http.Handler {
	anyone := func(*http.Request) (idempotency.Scope, error) { return idempotency.Anonymous("default"), nil }
	once := httpmw.Idempotency(app.UoW, app.Idempotency, anyone, nil)
	routes := http.NewServeMux()
	routes.Handle("POST /orders/{id}", once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := placeOrder(r.Context(), app, r.PathValue("id")); err != nil {
			http.Error(w, "the order was not placed", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})))
	return routes
}

func TestRepeatedRequestGetsTheAnswerOfTheFirst(t *testing.T) {
	kit, routes := oncetest.NewService(t, func(s oncetest.Setup) (http.Handler, *oncebox.App, error) {
		app, err := newService(t.Context(), s.DB, s.Broker, s.Config)
		if err != nil {
			return nil, nil, err
		}
		return newRoutes(app), app, nil
	})
	post := func() *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders/o-1", nil)
		r.Header.Set("Idempotency-Key", "key-1")
		answer := httptest.NewRecorder()
		routes().ServeHTTP(answer, r)
		return answer
	}
	kit.CrashAt(oncetest.AfterCommit)
	post() // committed, and nobody gets this answer
	kit.Drain()
	answer := post() // the client comes again
	kit.Drain()
	require.Equal(t, http.StatusCreated, answer.Code)
	require.Equal(t, "true", answer.Header().Get("Idempotent-Replayed"))
	requireOneInvoice(t, kit)
}
