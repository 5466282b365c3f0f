package routers

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// Echo makes a middleware of Echo, which renders the errors of handlers within.
func Echo(middleware Middleware) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			w, r := c.Response(), c.Request()
			defer func() { c.SetResponse(w); c.SetRequest(r) }() // for a recoverer further out
			r.Pattern = c.Path()
			middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.SetResponse(echo.NewResponse(w, c.Echo()))
				c.SetRequest(r)
				if err := next(c); err != nil {
					c.Error(err)
				}
			})).ServeHTTP(w, r)
			return nil
		}
	}
}
