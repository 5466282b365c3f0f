package pgsql_test

import (
	"context"
	"database/sql"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// within is a batch of one statement that takes a while.
func within(limit time.Duration, seconds string) *pgsql.Batch {
	b := &pgsql.Batch{Within: limit}
	b.Queue("SELECT pg_sleep(" + seconds + ")")
	return b
}

func TestSendWithinATime(t *testing.T) {
	for name, connector := range map[string]func(pgx.ConnConfig) *sql.DB{
		"one round trip":  func(cfg pgx.ConnConfig) *sql.DB { return sql.OpenDB(pgsql.NewConnector(cfg)) },
		"somebody else's": func(cfg pgx.ConnConfig) *sql.DB { return stdlib.OpenDB(cfg) },
	} {
		t.Run(name, func(t *testing.T) {
			c, tx := begun(t, pgtest.Open(t), connector)
			require.NoError(t, pgsql.Send(t.Context(), c, tx, within(3*time.Second, "0")))
			require.NoError(t, pgsql.Send(t.Context(), c, tx, within(0, "3.2")), "the limit of a batch is not that of the next one")
			err := pgsql.Send(t.Context(), c, tx, within(100*time.Millisecond, "5"))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "the database has not answered for 100ms")
			require.Error(t, pgsql.Send(t.Context(), c, tx, within(0, "0")), "the connection is closed")
		})
	}
}

// A connection that was closed for its silence is not a lost one: a unit of work would be run again at once.
func TestSendCommitWithinATime(t *testing.T) {
	_, conn, _ := pipelined(t)
	open, err := pgsql.SendCommit(t.Context(), bun.Conn{Conn: conn}, within(100*time.Millisecond, "5"))
	require.False(t, open, "nobody knows whether it is committed")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "the database has not answered for 100ms")
	_, _, lost := trouble(t, conn)
	require.False(t, lost)
}

// The end of the caller's context has its own error.
func TestSendCommitUntilTheContextEnds(t *testing.T) {
	_, conn, _ := pipelined(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := pgsql.SendCommit(ctx, bun.Conn{Conn: conn}, within(4*time.Second, "5"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotContains(t, err.Error(), "has not answered")
}

// The kernel gives up a connection whose host has vanished, at any time. That connection is lost, whatever time the batch has.
func TestSendOnAConnectionThatTimedOut(t *testing.T) {
	var vanished atomic.Bool
	conn, _ := begun(t, pgtest.Open(t), func(cfg pgx.ConnConfig) *sql.DB {
		dial := cfg.DialFunc
		cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dial(ctx, network, address)
			return &unreachable{c, &vanished}, err
		}
		return sql.OpenDB(pgsql.NewConnector(cfg))
	})
	_, err := pgsql.SendTogether(t.Context(), conn, within(time.Minute, "0"))
	require.NoError(t, err)
	vanished.Store(true)
	_, err = pgsql.SendTogether(t.Context(), conn, within(time.Minute, "0"))
	require.ErrorIs(t, err, syscall.ETIMEDOUT)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	_, _, lost := trouble(t, conn.Conn)
	require.True(t, lost)
}

// unreachable is a connection to a host that may have vanished.
type unreachable struct {
	net.Conn

	vanished *atomic.Bool
}

func (u *unreachable) Write(p []byte) (int, error) {
	if u.vanished.Load() {
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.ETIMEDOUT)}
	}
	return u.Conn.Write(p)
}
