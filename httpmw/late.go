package httpmw

import "log/slog"

// tellLate logs what is written to an answer when its handler has returned. Nobody gets it: what was to be sent was sent. It is a failure that was
// rendered too late, most often.
func tellLate(log *slog.Logger, e *exchange) {
	log.Error("oncebox: something was written to an answer that was over, because its handler had returned, and nobody gets it. A framework that renders "+
		"the errors of its handlers has to do so within the middleware, see docs/other-routers.md; a goroutine has to be waited for",
		"method", e.r.Method, "route", e.r.Pattern)
}
