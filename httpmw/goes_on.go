package httpmw

import (
	"log/slog"
	"net/http"
	"runtime"
	"strings"
)

// goingOn is a handler that only records that the request goes on. The real handler runs after the middleware has returned: without its unit, and
// whatever it has answered.
type goingOn struct{ http.Handler }

// markGoesOn recognizes such a handler by the caller that mounts the middleware: every version of Fiber's adaptor.HTTPMiddleware mounts it for each
// request, and puts such a handler at the end of the chain. The adaptor is recognized by its file and function name, of which the compiler keeps
// the last part if it has inlined the function.
func markGoesOn(next http.Handler) http.Handler {
	var calls [depthOfMount]uintptr
	frames := runtime.CallersFrames(calls[:runtime.Callers(2, calls[:])])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.File, "/adaptor.go") && strings.Contains(frame.File, "gofiber/") && strings.Contains(frame.Function, ".HTTPMiddleware.") {
			return goingOn{next}
		}
		if !more {
			return next
		}
	}
}

// depthOfMount limits the calls between the adaptor and a middleware that it mounts. It is small because some routers mount anew for each request.
const depthOfMount = 32

func goesOn(next http.Handler) bool {
	_, on := next.(goingOn)
	return on
}

func tellGoesOn(r *http.Request, log *slog.Logger, middleware string) {
	log.ErrorContext(r.Context(), "oncebox: httpmw."+middleware+" is mounted by Fiber's adaptor.HTTPMiddleware, which runs the handler when the "+
		"middleware has returned, and so outside of its transaction: mount it by fasthttpmw.Serve of "+
		"github.com/oncebox/oncebox/httpmw/fasthttpmw (docs/other-routers.md)",
		"method", r.Method, "route", r.Pattern)
}
