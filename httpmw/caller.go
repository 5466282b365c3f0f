package httpmw

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/oncebox/oncebox/idempotency"
)

type callerKey struct{}

var errNoCaller = errors.New("httpmw: Caller: the request has passed no Authenticate: mount httpmw.Authenticate outside of the middleware that calls Caller")

// Authenticate returns a middleware that finds out who sends a request. find returns the tenant and the principal, for example those of a token, or a
// tenant and Anonymous. It is called once for each request. The tenant is put into the context, as [Tenant] does, and [Caller] returns the scope to
// [Idempotency]. A scope without a tenant is for a service without tenants; in a service with tenants find returns an error instead.
//
//	once := httpmw.Idempotency(units, keys, httpmw.Caller, nil)
//	mux.Handle("POST /orders", once(place))
//	return httpmw.Authenticate(callerOf)(mux)
//
// An error of find is answered with 401 and the challenge [DefaultChallenge], or with the WWW-Authenticate that a middleware further out has set. An error
// that is a [Problem] is sent instead, for example a 503 if the users cannot be looked up. A tenant that cannot be an identifier is refused as by [Tenant].
//
// It panics if find is nil.
func Authenticate(find ScopeFunc) func(http.Handler) http.Handler {
	if find == nil {
		panic("httpmw: Authenticate: the function is nil: pass a function that returns who sends a request")
	}
	ofTenant := Tenant(func(r *http.Request) (string, error) {
		scope, err := Caller(r)
		return scope.Tenant, err
	})
	return func(next http.Handler) http.Handler {
		within := ofTenant(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			scope, err := find(r)
			if err != nil {
				refuseCaller(err, w, r)
				return
			}
			inner := within
			if scope.Tenant == "" {
				inner = next
			}
			serveWith(context.WithValue(r.Context(), callerKey{}, scope), inner, w, r)
		})
	}
}

func refuseCaller(err error, w http.ResponseWriter, r *http.Request) {
	p, own := errors.AsType[Problem](err)
	if !own {
		p = Problem{Status: http.StatusUnauthorized}
		slog.DebugContext(r.Context(), "oncebox: the function of httpmw.Authenticate does not know who sends a request; the request is refused", "error", err)
	}
	if p.Status == http.StatusUnauthorized && w.Header().Get("WWW-Authenticate") == "" {
		w.Header().Set("WWW-Authenticate", DefaultChallenge)
	}
	WriteProblem(w, r, p)
}

// Caller is the [ScopeFunc] of a request that has passed [Authenticate]. It returns what the function of Authenticate has returned.
func Caller(r *http.Request) (idempotency.Scope, error) {
	scope, ok := r.Context().Value(callerKey{}).(idempotency.Scope)
	if !ok {
		return scope, errNoCaller
	}
	return scope, nil
}

// Anyone is the [ScopeFunc] of a service that knows no users: all clients of a tenant share their keys, and the tenant is that of [Tenant], else the
// default. See [idempotency.Anonymous].
func Anyone(*http.Request) (idempotency.Scope, error) { return idempotency.Anonymous(""), nil }
