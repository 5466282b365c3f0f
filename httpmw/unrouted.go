package httpmw

import (
	"cmp"
	"net/http"

	"github.com/go-chi/chi/v5"
)

// keeps reports whether an answer whose work is rolled back is stored for retries.
func (k *keyed) keeps(e *exchange, rec *recorder) bool {
	return !rec.refused && k.cfg.Keep(rec.status) && !e.unrouted(rec.status)
}

// unrouted reports whether the answer comes from a router behind the middleware that has no such route. The next version of the service may have
// it. This can be seen for routers of chi, and for a http.ServeMux that is wrapped directly.
func (e *exchange) unrouted(status int) bool {
	if status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
		return false
	}
	if mux, ok := e.next.(*http.ServeMux); ok {
		_, pattern := mux.Handler(e.r)
		return pattern == ""
	}
	if e.route == nil || e.route.Routes == nil {
		return false
	}
	// Within a mounted router RoutePath is a part of the path, and after a middleware such as StripSlashes it is the path that counts.
	for _, path := range []string{cmp.Or(e.r.URL.RawPath, e.r.URL.Path), e.route.RoutePath} {
		if path != "" && e.route.Routes.Match(chi.NewRouteContext(), e.r.Method, path) {
			return false
		}
	}
	return true
}
