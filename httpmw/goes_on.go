package httpmw

import (
	"log/slog"
	"net/http"
	"runtime"
	"strings"
)

// goingOn is a handler that only records that the request passes on. The real handler runs after the middleware has returned, and so outside of its
// unit of work; the middleware cannot see its answer.
type goingOn struct{ http.Handler }

// markGoesOn wraps next if it is such a handler, which it recognizes by the caller that mounts the middleware. Every version of Fiber's
// adaptor.HTTPMiddleware mounts a middleware anew for each request, and puts such a handler at the end of the chain. The adaptor is recognized by its
// file and function name; the compiler keeps the last part of the name if it has inlined the function.
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

// tellGoesOn logs what to mount instead. The request is refused, because its handler would work without a transaction.
func tellGoesOn(r *http.Request, log *slog.Logger, middleware string) {
	log.ErrorContext(r.Context(), "oncebox: httpmw."+middleware+" is mounted with Fiber's adaptor.HTTPMiddleware. That adaptor runs the handler after the "+
		"middleware has returned, so the handler has no transaction: mount it with fasthttpmw.Serve of github.com/oncebox/oncebox/httpmw/fasthttpmw "+
		"(docs/other-routers.md)",
		"method", r.Method, "route", r.Pattern)
}
