package httpmw

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/oncebox/oncebox/event"
)

// Tenant returns a middleware that puts the request's tenant into its context, where events and handlers find it with
// [event.TenantFrom]. find takes it from a header, a host name, or from what authentication found out; "" leaves the
// context as it is, so that the configured default applies. An error, and a tenant that is no valid identifier, is
// answered with 400 and logged. It panics if find is nil.
func Tenant(find func(*http.Request) (string, error)) func(http.Handler) http.Handler {
	if find == nil {
		panic("httpmw: Tenant: the function is nil: pass one that finds the tenant of a request")
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id, err := find(r)
			if err := errors.Join(err, event.ValidateIdentifier("tenant", id)); err != nil {
				slog.Default().WarnContext(r.Context(), "oncebox: a request without a valid tenant", "error", err)
				tenantInvalid().answer(w, DefaultProblemBase, "").write(w, r)
				return
			}
			if id != "" {
				r = r.WithContext(event.WithTenant(r.Context(), id))
			}
			next.ServeHTTP(w, r)
		})
	}
}
