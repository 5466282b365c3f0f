package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

const (
	// readyTimeout is less than what probes usually wait for.
	readyTimeout = 3 * time.Second
	// unreadyAgain is how often the log repeats why the process is not ready: probes may come from anybody, at any rate.
	unreadyAgain = 10 * time.Second
)

// alive says that the process is: restarting it would help nobody.
func alive(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }

// ready says whether this process can do its work. What stands in the way names hosts and users, and is for the log alone.
func (s *service) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	err := errors.Join(s.app.Ready(ctx, s.role.parts()...), checkTables(ctx, s.db))
	if r.Context().Err() != nil {
		return // nobody waits for the answer, and the error may be no more than that
	}
	s.unready.tell(s.log, err)
	if err != nil {
		http.Error(w, "not ready: the log of this process says why", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ready\n"))
}

// unready is what the log was told.
type unready struct {
	mu   sync.Mutex
	told time.Time // zero: it is ready
}

// tell writes why the process is not ready, or that it is again.
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
