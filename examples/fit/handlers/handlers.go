// Package handlers puts the Idempotency-Key middleware before HTTP handlers that were there before it.
//
// A handler has to do its work in the unit that the middleware puts into the request's context: what it does through a pool of its own
// is committed by itself, and done again when the handler is run again.
package handlers

import (
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"

	"github.com/oncebox/oncebox/examples/fit/plainsql"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/uow"
)

// Middleware is what Once and httpmw.Idempotency return.
type Middleware = func(http.Handler) http.Handler

// Once executes each Idempotency-Key once, and runs each handler in a unit of work. Without UnitOfWork a request
// without a key would have no unit.
func Once(units *uow.Manager, keys *idempotency.Store, scope httpmw.ScopeFunc) Middleware {
	once, inUnit := httpmw.Idempotency(units, keys, scope, nil), httpmw.UnitOfWork(units)
	return func(h http.Handler) http.Handler { return once(inUnit(h)) }
}

// NetHTTP is the application on net/http.
func NetHTTP(once Middleware) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /accounts/{id}/deposits", once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		deposit(w, r, r.PathValue("id"))
	})))
	return mux
}

// Chi is the application on chi.
func Chi(once Middleware) http.Handler {
	router := chi.NewRouter()
	router.With(once).Post("/accounts/{id}/deposits", func(w http.ResponseWriter, r *http.Request) {
		deposit(w, r, chi.URLParam(r, "id"))
	})
	return router
}

// deposit reads the amount from a form. An answer of 500 is rolled back, and the client's next try runs the
// handler again.
func deposit(w http.ResponseWriter, r *http.Request, account string) {
	cents, err := strconv.ParseInt(r.FormValue("cents"), 10, 64)
	if err != nil {
		http.Error(w, "cents is no number", http.StatusUnprocessableEntity)
		return
	}
	unit, ok := uow.FromContext(r.Context())
	if !ok {
		http.Error(w, "no unit of work: mount the route within Once", http.StatusInternalServerError)
		return
	}
	if err := plainsql.DepositIn(r.Context(), unit, account, cents); err != nil {
		http.Error(w, "failed", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
}
