package probe_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/serve/probe"
)

func get(ctx context.Context, h http.Handler) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
	return w
}

func TestAlive(t *testing.T) {
	require.Equal(t, http.StatusOK, get(t.Context(), http.HandlerFunc(probe.Alive)).Code)
}

// The log has the reason once in ten seconds, and the answer never has it.
func TestReasonsAreLoggedAndNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		why := errors.New("host db-1 does not answer")
		ready := probe.Ready(slog.New(slog.NewTextHandler(&log, nil)), func(context.Context) error { return why })
		for range 3 {
			w := get(t.Context(), ready)
			require.Equal(t, http.StatusServiceUnavailable, w.Code)
			require.NotContains(t, w.Body.String(), "db-1")
		}
		require.Equal(t, 1, strings.Count(log.String(), "db-1"))
		time.Sleep(10 * time.Second)
		get(t.Context(), ready)
		require.Equal(t, 2, strings.Count(log.String(), "db-1"))
		why = nil
		for range 2 {
			require.Equal(t, http.StatusOK, get(t.Context(), ready).Code)
		}
		require.Equal(t, 1, strings.Count(log.String(), "the process is ready"))
	})
}

// A probe that comes early is normal. A process that was ready and is not any more is not.
func TestLevelOfAReason(t *testing.T) {
	var log strings.Builder
	why := errors.New("it starts")
	ready := probe.Ready(slog.New(slog.NewTextHandler(&log, nil)), func(context.Context) error { return why })
	get(t.Context(), ready)
	require.Contains(t, log.String(), "level=INFO")
	require.NotContains(t, log.String(), "level=WARN")
	why = nil
	get(t.Context(), ready)
	why = errors.New("the database is away")
	get(t.Context(), ready)
	require.Contains(t, log.String(), `level=WARN msg="oncebox: the process is not ready" error="the database is away"`)
}

// A client that goes away makes the check fail, which says nothing about the process.
func TestClientThatLeaves(t *testing.T) {
	var log strings.Builder
	ctx, leave := context.WithCancel(t.Context())
	ready := probe.Ready(slog.New(slog.NewTextHandler(&log, nil)), func(ctx context.Context) error {
		leave()
		<-ctx.Done()
		return ctx.Err()
	})
	get(ctx, ready)
	require.Empty(t, log.String())
}
