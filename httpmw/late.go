package httpmw

import (
	"log/slog"
	"sync"
	"time"
)

// lateEvery is how often it is logged of one route.
const lateEvery = time.Minute

// late logs what is written to an answer when its handler has returned. Nobody gets it: what was to be sent was sent. It is a failure that was
// rendered too late, most often.
type late struct {
	mu   sync.Mutex
	last map[string]time.Time // by route; a router that does not tell its routes has one
}

func (l *late) tell(log *slog.Logger, e *exchange) {
	if !l.due(e.r.Pattern) {
		return
	}
	log.Error("oncebox: something was written to an answer that was over, because its handler had returned, and nobody gets it. A framework that renders "+
		"the errors of its handlers has to do so within the middleware, see docs/other-routers.md; a goroutine has to be waited for",
		"method", e.r.Method, "route", e.r.Pattern)
}

func (l *late) due(route string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if last, told := l.last[route]; told && now.Sub(last) < lateEvery {
		return false
	}
	if l.last == nil {
		l.last = map[string]time.Time{}
	}
	l.last[route] = now
	return true
}
