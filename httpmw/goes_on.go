package httpmw

import (
	"log/slog"
	"net/http"
	"runtime"
	"strings"
)

// goingOn is a handler that only notes that the request goes on: what it stands for runs when the middleware has returned, without its unit, and
// whatever it has answered.
type goingOn struct{ http.Handler }

// markGoesOn knows such a handler by who mounts the middleware. Fiber's adaptor.HTTPMiddleware, in each of its versions, does so for each request, and has
// such a one at the end of the chain, whatever is between. It is known by its file and name, of which the compiler leaves the last part where it has
// inlined the function.
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

// depthOfMount bounds what may lie between the adaptor and a middleware that it mounts: some routers mount anew for each request, too.
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
