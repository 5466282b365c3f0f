package routers

import "net/http"

// HandlerFunc is a handler of your own that returns its error.
type HandlerFunc func(w http.ResponseWriter, r *http.Request) error

// WithErrors renders the errors of a handler. The middleware goes around what it returns: middleware(WithErrors(pay, render)).
func WithErrors(handler HandlerFunc, render func(http.ResponseWriter, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := handler(w, r); err != nil {
			render(w, err)
		}
	})
}
