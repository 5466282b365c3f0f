package httpmw

import (
	"log/slog"
	"net/http"
	"reflect"
	"runtime"
	"strings"
)

// goesOn tells of a handler that only notes that the request goes on: what it stands for runs when the middleware has returned, without its unit, and
// whatever it has answered. Fiber's adaptor.HTTPMiddleware has such a one, in each of its versions. It is known by its file and name, of which the
// compiler leaves the last part where it has inlined the function.
func goesOn(next http.Handler) bool {
	h, ok := next.(http.HandlerFunc)
	if !ok {
		return false
	}
	at := reflect.ValueOf(h).Pointer()
	f := runtime.FuncForPC(at)
	if f == nil || !strings.Contains(f.Name(), ".HTTPMiddleware.") {
		return false
	}
	file, _ := f.FileLine(at)
	return strings.Contains(file, "gofiber/fiber/") && strings.HasSuffix(file, "/middleware/adaptor/adaptor.go")
}

func tellGoesOn(r *http.Request, log *slog.Logger, middleware string) {
	log.ErrorContext(r.Context(), "oncebox: httpmw."+middleware+" is mounted by Fiber's adaptor.HTTPMiddleware, which runs the handler when the "+
		"middleware has returned, and so outside of its transaction: mount it by fasthttpmw.Serve of "+
		"github.com/oncebox/oncebox/httpmw/fasthttpmw (docs/other-routers.md)",
		"method", r.Method, "route", r.Pattern)
}
