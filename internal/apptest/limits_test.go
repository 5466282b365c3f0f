package apptest_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// A client that sends a part of its body and stops is not waited for.
func TestHalfABody(t *testing.T) {
	vars := variables(t, pgtest.Open(t), map[string]string{"ONCEBOX_SERVE_READ_TIMEOUT": "300ms"})
	r := run(t, shop(), vars)
	var status int
	var closes bool
	await.Nil(t, func() error { // a machine that stands still does not send even the header in time
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.url[len("http://"):])
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprintf(conn, "POST /orders/o-1 HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 100\r\n\r\n{")
		require.NoError(t, err)
		got, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return err
		}
		status, closes = got.StatusCode, got.Close
		return got.Body.Close()
	}, "an answer")
	require.Equal(t, http.StatusBadRequest, status)
	require.True(t, closes, "the connection is of no use any more")
}

// The context of a request ends, so that a handler does not wait for ever.
func TestRequestsHaveATimeLimit(t *testing.T) {
	s := shop()
	s.Setup = func(context.Context, *oncebox.App) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			deadline, limited := r.Context().Deadline()
			fmt.Fprint(w, limited && time.Until(deadline) <= 7*time.Second)
		}), nil
	}
	r := run(t, s, variables(t, pgtest.Open(t), map[string]string{"ONCEBOX_SERVE_REQUEST_TIMEOUT": "7s"}))
	_, body := do(t, http.MethodGet, r.url+"/any/path")
	require.Equal(t, "true", body)
}

// Routes of net/http are the routes of the metrics, too, and paths reach the service as they were sent.
func TestOtherRouters(t *testing.T) {
	s := shop()
	s.Setup = func(context.Context, *oncebox.App) (http.Handler, error) {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /things/{id}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.PathValue("id")) })
		return mux, nil
	}
	r := run(t, s, variables(t, pgtest.Open(t), nil))
	_, body := do(t, http.MethodGet, r.url+"/things/a%2Fb")
	require.Equal(t, "a/b", body)
	_, metrics := do(t, http.MethodGet, r.url+"/metrics")
	require.Regexp(t, `(?m)^http_server_request_duration_seconds_count\{[^}]*http_route="/things/\{id\}"[^}]*\} 1$`, metrics)
}
