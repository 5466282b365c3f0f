// Package routers mounts the middlewares of httpmw on routers whose own middlewares are not of the form func(http.Handler) http.Handler, or whose
// handlers return errors. docs/other-routers.md shows these functions. The test runs each of them, and the form that each router documents itself.
package routers

import "net/http"

// Middleware is one of httpmw.
type Middleware = func(http.Handler) http.Handler
