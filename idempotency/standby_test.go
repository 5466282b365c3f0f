//go:build unix

package idempotency_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// replicated is a store in a server whose COMMITs wait for a standby. Its pool has one connection.
type replicated struct {
	*idempotency.Store

	primary *pgtest.Own
	base    *pgtest.DB
	pool    *bun.DB
	network *network // of the pool
}

// network is that of one connection.
type network struct {
	dials   atomic.Int64  // of cancel requests as well
	goodbye chan struct{} // closed when the client gives the connection up, which is after any cancel request
	once    sync.Once
}

func (n *network) dial(ctx context.Context, how, addr string) (net.Conn, error) {
	n.dials.Add(1)
	conn, err := new(net.Dialer).DialContext(ctx, how, addr)
	return &watchedConn{conn, n}, err
}

type watchedConn struct {
	net.Conn

	network *network
}

// Write looks for the message Terminate (PostgreSQL 55.7, Message Formats).
func (c *watchedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if bytes.HasPrefix(p, []byte("X\x00\x00\x00\x04")) {
		c.network.once.Do(func() { close(c.network.goodbye) })
	}
	return n, err
}

func newReplicated(t *testing.T) *replicated {
	t.Helper()
	r := &replicated{primary: pgtest.Start(t, nil)}
	r.primary.Standby(t)
	r.base = r.primary.Migrated(t)
	r.network = &network{goodbye: make(chan struct{})}
	r.pool = oneConnection(t, r.base, r.network.dial)
	r.Store = idempotency.NewStore(&idempotency.Config{Schema: r.base.Schema})
	return r
}

// waits returns how many sessions wait for the standby with a statement like that.
func (r *replicated) waits(t *testing.T, like string) int {
	t.Helper()
	return count(t, r.base, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '"+like+"'")
}

// An answer is stored without a transaction around it, and the caller gives up while the standby has not confirmed it. Nobody may find
// it and tell a client: the standby may take over without it.
func TestAnswerThatTheStandbyDoesNotConfirm(t *testing.T) {
	r := newReplicated(t)
	key := keyOf(t, r.Store, "k")
	require.NoError(t, r.pool.PingContext(t.Context()))
	lookup := func() *idempotency.Response {
		found, err := r.Lookup(t.Context(), r.base.DB, key, one)
		require.NoError(t, err)
		return found
	}

	release := r.primary.Stall(t)
	ctx, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Complete(ctx, r.pool, key, one, idempotency.Response{Status: 409}) }()
	await.True(t, func() bool { return r.waits(t, "%") == 1 }, "the answer to wait for the standby")
	giveUp()
	require.ErrorIs(t, <-ended, context.Canceled)
	await.Receive(t, r.network.goodbye, "the connection to be given up")
	require.EqualValues(t, 1, r.network.dials.Load(), "a cancel request has a connection of its own")
	require.Nil(t, lookup())
	require.Equal(t, 1, r.waits(t, "%"))
	release()
	await.True(t, func() bool { return lookup() != nil }, "the answer to be there for all to see")
}

// The session is ended while it waits for the standby. The repeat finds that the answer is written, and says so when the standby has it.
func TestRepeatedCompleteWaitsForTheStandby(t *testing.T) {
	r := newReplicated(t)
	c := claim(t, r.Store, r.pool, keyOf(t, r.Store, "k"), idempotency.WithLease(time.Hour))
	release := r.primary.Stall(t)
	ended := make(chan error, 1)
	go func() { ended <- c.Complete(t.Context(), r.pool, idempotency.Response{Status: 200}) }()
	await.True(t, func() bool { return r.waits(t, "%") == 1 }, "the answer to wait for the standby")
	require.Equal(t, 1, count(t, r.base, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))
	await.True(t, func() bool {
		select {
		case err := <-ended:
			require.Fail(t, "it has not waited", "%v", err)
		default:
		}
		return r.waits(t, "%pg_logical_emit_message%") > 0
	}, "the repeat to wait for the standby")
	release()
	require.NoError(t, <-ended)
}
