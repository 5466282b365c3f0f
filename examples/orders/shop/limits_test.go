package shop

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// Everything that a client can make the server wait for ends, and the last answer of all fits in: that of a request that came slowly,
// worked for long, and whose COMMIT was given up and then looked for in vain.
func TestServerIsBounded(t *testing.T) {
	t.Parallel()
	for _, set := range []time.Duration{0, time.Minute} {
		cfg := config.Config{DatabaseURL: pgtest.URL(t), Schema: pgtest.Open(t).Schema}
		cfg.UoW.CommitTimeout = set
		s, err := newService(t.Context(), RoleAll, nil, cfg)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.Equal(t, cmp.Or(set, commitTimeout), s.commit)
		server := s.server()
		require.Positive(t, server.ReadHeaderTimeout)
		require.Positive(t, server.ReadTimeout)
		require.Positive(t, server.IdleTimeout)
		require.GreaterOrEqual(t, requestTimeout, httpmw.DefaultTimeout)
		require.Greater(t, server.WriteTimeout, server.ReadTimeout+requestTimeout+2*s.commit)
	}
}

// A client that sends a part of its body and stops is not waited for.
func TestHalfABody(t *testing.T) {
	t.Parallel()
	s, err := newService(t.Context(), RoleAll, nil, config.Config{DatabaseURL: pgtest.URL(t), Schema: pgtest.Open(t).Schema})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	server := s.server()
	require.NotZero(t, server.ReadTimeout)
	server.ReadTimeout = 300 * time.Millisecond // nobody waits for the real one
	server.ReadHeaderTimeout = time.Minute
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	defer func() {
		require.NoError(t, server.Shutdown(context.WithoutCancel(t.Context())))
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
	}()

	conn, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = fmt.Fprintf(conn, "POST /orders HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 100\r\n\r\n{")
	require.NoError(t, err)
	got, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer got.Body.Close()
	require.Equal(t, http.StatusBadRequest, got.StatusCode)
	require.True(t, got.Close, "the connection is of no use any more")
}

// A database that takes no writes is out of order, and no mistake of the service: clients come again, and probes know.
func TestReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.OpenApart(t)
	s := openShopOn(t, db.DB, db.URL, RoleAll, config.Config{})
	s.requireReady()
	id := s.place("k1")

	db.ReadOnly(t)
	for range 2 {
		r := s.post("k2", "/orders/"+id+"/items", itemBody)
		require.Equal(t, http.StatusServiceUnavailable, r.status, r.body)
		require.NotEmpty(t, r.header.Get("Retry-After"))
	}
	s.requireAnswer("/orders/"+id, http.StatusOK, "placed") // reading goes on
	s.requireAnswer("/readyz", http.StatusServiceUnavailable, "not ready")
	require.NotContains(t, s.log.String(), "status=500")

	db.Writable(t)
	s.requireReady()
	await.True(t, func() bool { // connections that were ended are used once more
		return s.post("k2", "/orders/"+id+"/items", itemBody).status == http.StatusOK
	}, "the item")
}
