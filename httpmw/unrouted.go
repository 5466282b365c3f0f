package httpmw

import (
	"cmp"
	"net/http"

	"github.com/go-chi/chi/v5"
)

// keeps reports whether an answer that drops the work is the same for each retry.
func (k *keyed) keeps(e *exchange, rec *recorder) bool {
	return !rec.refused && k.cfg.Keep(rec.status) && !e.unrouted(rec.status)
}

// unrouted reports whether the answer is that of a router behind the middleware which knows no such route, as far as they let one see: those of
// chi, and a http.ServeMux that is wrapped directly. The next version of the service may have the route.
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
	// Within a mounted router the path of the route is a part, and behind StripSlashes and its like it is the one that counts.
	for _, path := range []string{cmp.Or(e.r.URL.RawPath, e.r.URL.Path), e.route.RoutePath} {
		if path != "" && e.route.Routes.Match(chi.NewRouteContext(), e.r.Method, path) {
			return false
		}
	}
	return true
}
