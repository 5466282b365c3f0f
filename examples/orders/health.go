package main

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// readyTimeout is less than what probes usually wait for.
const readyTimeout = 3 * time.Second

// alive says that the process is: restarting it would help nobody.
func alive(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }

// ready says whether this process can do its work, or what stands in the way.
func (s *service) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	err := errors.Join(s.app.Ready(ctx, s.role.parts()...), checkTables(ctx, s.db))
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ready\n"))
}
