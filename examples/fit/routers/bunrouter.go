package routers

import (
	"net/http"

	"github.com/uptrace/bunrouter"
)

// Bunrouter makes a middleware of bunrouter. render answers for the errors of handlers, as the error handler further out does.
func Bunrouter(middleware Middleware, render func(http.ResponseWriter, error)) bunrouter.MiddlewareFunc {
	return func(next bunrouter.HandlerFunc) bunrouter.HandlerFunc {
		return func(w http.ResponseWriter, req bunrouter.Request) error {
			req.Request.Pattern = req.Route()
			middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				inner := req // its parameters
				inner.Request = r
				if err := next(w, inner); err != nil {
					render(w, err)
				}
			})).ServeHTTP(w, req.Request)
			return nil
		}
	}
}
