package httpmw

import (
	"log/slog"
	"net/http"
	"reflect"
	"runtime"
	"strings"
)

// goesOn tells of a handler that only notes that the request goes on: what it stands for runs when the middleware has returned, without its unit, and
// whatever it has answered. Fiber's adaptor.HTTPMiddleware has such a one, in each of its versions. It is known by its name.
func goesOn(next http.Handler) bool {
	h, ok := next.(http.HandlerFunc)
	if !ok {
		return false
	}
	f := runtime.FuncForPC(reflect.ValueOf(h).Pointer())
	return f != nil && strings.Contains(f.Name(), "/middleware/adaptor.HTTPMiddleware.")
}

func tellGoesOn(r *http.Request, log *slog.Logger, middleware string) {
	log.ErrorContext(r.Context(), "oncebox: httpmw."+middleware+" is mounted by Fiber's adaptor.HTTPMiddleware, which runs the handler when the "+
		"middleware has returned, and so outside of its transaction: mount it by fibermw.New of github.com/oncebox/oncebox/httpmw/fibermw",
		"method", r.Method, "route", r.Pattern)
}
