package httpmw

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/idempotency"
)

type callerKey struct{}

var (
	errNoToken      = errors.New("httpmw: BearerTokens: the request has no bearer token")
	errUnknownToken = errors.New("httpmw: BearerTokens: nobody has the bearer token of the request")
)

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

// BearerTokens has the tenant of each token, for a service whose clients have a token for each tenant. Its Scope is for [Authenticate]:
//
//	return httpmw.Authenticate(tokens.Scope)(mux)
//
// As a field of settings it reads token:tenant, separated by commas (config.Env).
type BearerTokens map[string]string

// Scope returns the tenant whose token the request has in Authorization: Bearer (RFC 6750), and no principal: all clients of a tenant share their
// idempotency keys, also when the tenant gets another token. It compares with all tokens, in a time that is the same for each wrong token of that length.
// An error, for Authenticate to answer with 401, means that there is no token, or an unknown one.
func (t BearerTokens) Scope(r *http.Request) (idempotency.Scope, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return idempotency.Scope{}, errNoToken
	}
	sum, owner := sha256.Sum256([]byte(token)), ""
	for known, tenant := range t {
		other := sha256.Sum256([]byte(known)) // of one length
		if subtle.ConstantTimeCompare(sum[:], other[:]) == 1 {
			owner = tenant
		}
	}
	if owner == "" {
		return idempotency.Scope{}, errUnknownToken
	}
	return idempotency.Anonymous(owner), nil
}

// UnmarshalText reads token:tenant, separated by commas. A token has no colon and no comma. The error has the number of the entry, and no part of its
// text: the text may be a token, and the error goes to the log.
func (t *BearerTokens) UnmarshalText(text []byte) error {
	read, numbers := BearerTokens{}, map[string]int{}
	for i, entry := range strings.Split(string(text), ",") {
		token, tenant, _ := strings.Cut(strings.TrimSpace(entry), ":")
		switch earlier := numbers[token]; {
		case token == "" || tenant == "":
			return fmt.Errorf("httpmw: BearerTokens: entry %d is not token:tenant", i+1)
		case event.ValidateIdentifier("tenant", tenant) != nil:
			return fmt.Errorf("httpmw: BearerTokens: entry %d has a tenant that is not an identifier", i+1)
		case earlier > 0:
			return fmt.Errorf("httpmw: BearerTokens: entries %d and %d have the same token: give each client a token of its own", earlier, i+1)
		}
		read[token], numbers[token] = tenant, i+1
	}
	*t = read
	return nil
}

// Anyone is the [ScopeFunc] of a service that knows no users: all clients of a tenant share their keys, and the tenant is that of [Tenant], else the
// default. See [idempotency.Anonymous].
func Anyone(*http.Request) (idempotency.Scope, error) { return idempotency.Anonymous(""), nil }
