package probe

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

const (
	// readyTimeout is how long the check may take: less than probes usually wait.
	readyTimeout = 3 * time.Second
	// again is how often the log repeats why the process is not ready.
	again = 10 * time.Second
)

// Alive answers 200 as long as the process runs. It asks neither database nor broker, because a restart would not mend them.
func Alive(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }

// Ready answers 200 if check returns nil, and 503 if it returns an error. check gets 3 seconds. Use oncebox.App.ReadyToWrite for a process that answers
// requests, and oncebox.App.Ready for relays and consumers. The log gets the error, and a line when the process is ready. Until the process is ready for
// the first time, the error is normal and has level info; later it has level warn.
func Ready(log *slog.Logger, check func(context.Context) error) http.Handler {
	r := &readiness{log: log}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := context.WithTimeout(req.Context(), readyTimeout)
		defer cancel()
		err := check(ctx)
		if req.Context().Err() != nil {
			return // the client has left, which may be the only cause of the error
		}
		r.note(err)
		if err != nil {
			http.Error(w, "not ready: the log of this process says why", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ready\n"))
	})
}

// readiness is the last answer that was logged.
type readiness struct {
	log *slog.Logger

	mu      sync.Mutex
	told    time.Time // time of the last line; zero: the process is ready
	started bool      // the process was ready once
}

// note logs why the process is not ready, or that it is ready again.
func (r *readiness) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.started = true
		if !r.told.IsZero() {
			r.log.Info("oncebox: the process is ready")
			r.told = time.Time{}
		}
	case time.Since(r.told) >= again:
		if r.started {
			r.log.Warn("oncebox: the process is not ready", "error", err)
		} else {
			r.log.Info("oncebox: the process starts and is not ready yet", "error", err)
		}
		r.told = time.Now()
	}
}
