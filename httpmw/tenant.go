package httpmw

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/otelx"
)

// Tenant returns a middleware that puts the request's tenant into its context, where events and handlers find it with [event.TenantFrom], and
// [Idempotency] as well. find takes it from a header, a host name, or from the result of the authentication.
//
// A request without a tenant is refused, because its data would belong to the default tenant. If requests without a tenant are allowed, let find
// return a tenant's name for them. An error, an empty tenant and an invalid identifier are answered with 400 and logged by slog.Default(), or by the
// logger of [WithTenantLogger].
//
// Mount it outside of Idempotency. Within, it comes too late for the key: a request whose tenant is not that of its key is answered with
// 500, and the log says why.
//
// It panics if find is nil.
func Tenant(find func(*http.Request) (string, error), opts ...TenantOption) func(http.Handler) http.Handler {
	if find == nil {
		panic("httpmw: Tenant: the function is nil: pass a function that returns the tenant of a request")
	}
	var t tenant
	for _, opt := range opts {
		opt(&t)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id, err := find(r)
			if err == nil && id == "" {
				err = errNoTenant
			}
			if err := errors.Join(err, event.ValidateIdentifier("tenant", id)); err != nil {
				t.logger().WarnContext(r.Context(), "oncebox: the function of httpmw.Tenant found no valid tenant in a request; the request is "+
					"refused", "error", err)
				t.refuse(tenantInvalid(), w, r)
				return
			}
			if p, within := r.Context().Value(passedKey{}).(*passed); within && p.tenantFromContext && p.key.Tenant() != id {
				t.logger().ErrorContext(r.Context(), "oncebox: httpmw.Tenant is mounted inside httpmw.Idempotency, so the idempotency key was stored for "+
					"another tenant; the request is refused: mount Tenant outside of "+
					"Idempotency", "key", p.key.String(), "tenant_of_key", p.key.Tenant(), "tenant", id)
				t.refuse(misplaced(), w, r)
				return
			}
			serveWith(event.WithTenant(r.Context(), id), next, w, r)
		})
	}
}

// TenantOption changes what [Tenant] does.
type TenantOption func(*tenant)

// WithTenantRefuse makes the middleware write its refusals in the format of the service. Default: application/problem+json.
func WithTenantRefuse(refuse RefuseFunc) TenantOption { return func(t *tenant) { t.own = refuse } }

// WithTenantLogger sets the logger of the middleware, for example the Logger of uow.Manager.Telemetry. Default: slog.Default().
func WithTenantLogger(log *slog.Logger) TenantOption { return func(t *tenant) { t.log = log } }

// tenant holds the options that the requests of one [Tenant] share.
type tenant struct {
	own RefuseFunc
	log *slog.Logger
}

func (t *tenant) logger() *slog.Logger { return otelx.Logger(t.log) }

func (t *tenant) refuse(p Problem, w http.ResponseWriter, r *http.Request) {
	s := sender{base: DefaultProblemBase, own: t.own, log: t.logger()}
	s.send(p.answer(w, retryAfter), w, r)
}

var errNoTenant = errors.New("httpmw: Tenant: the function returned an empty tenant: return a default tenant if requests without a tenant are allowed")
