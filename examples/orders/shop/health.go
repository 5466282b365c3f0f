package shop

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

const (
	// readyTimeout is how long the check may take: less than probes usually wait.
	readyTimeout = 3 * time.Second
	// unreadyAgain is how often the log repeats why the process is not ready: probes may come from anybody, at any rate.
	unreadyAgain = 10 * time.Second
)

// alive answers as long as the process runs. Restarting the process would not mend a broken dependency.
func alive(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }

// ready reports whether this process can do its work. Only the log gets the reason, because it may name
// hosts and users.
func (s *service) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	err := errors.Join(s.app.Ready(ctx, s.role.parts()...), checkTables(ctx, s.db))
	if r.Context().Err() != nil {
		return // the client has left, which may be the only cause of the error
	}
	s.unready.tell(s.log, err)
	if err != nil {
		http.Error(w, "not ready: the log of this process says why", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ready\n"))
}

// unready is what was logged last about readiness.
type unready struct {
	mu   sync.Mutex
	told time.Time // when it was logged; zero: the process is ready
}

// tell logs why the process is not ready, or that it is ready again.
func (u *unready) tell(log *slog.Logger, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case err == nil && !u.told.IsZero():
		log.Info("orders: ready")
		u.told = time.Time{}
	case err != nil && time.Since(u.told) >= unreadyAgain:
		log.Warn("orders: not ready", "error", err)
		u.told = time.Now()
	}
}
