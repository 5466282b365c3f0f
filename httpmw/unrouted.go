package httpmw

import (
	"cmp"
	"net/http"

	"github.com/go-chi/chi/v5"
)

// keeps reports whether an answer whose work was rolled back is stored for retries.
func (k *keyed) keeps(e *exchange, rec *recorder) bool {
	return !rec.refused && k.cfg.Keep(rec.status) && !e.unrouted(rec.status)
}

// unrouted reports whether a router further in has answered because it has no such route. That answer is not stored, because the next version of the
// service may have the route. It can be recognized for routers of chi, and for an http.ServeMux that is wrapped directly.
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
	// RoutePath counts within a mounted router, where it is a part of the path, and after a middleware that changes it, such as StripSlashes.
	for _, path := range []string{cmp.Or(e.r.URL.RawPath, e.r.URL.Path), e.route.RoutePath} {
		if path != "" && e.route.Routes.Match(chi.NewRouteContext(), e.r.Method, path) {
			return false
		}
	}
	return true
}
