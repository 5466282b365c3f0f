//go:build unix

package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// replicated is a store in a server whose COMMITs wait for a standby. Its pool has one connection.
type replicated struct {
	*idempotency.Store

	primary *pgtest.Own
	base    *pgtest.DB
	pool    *bun.DB
}

func newReplicated(t *testing.T) *replicated {
	t.Helper()
	r := &replicated{primary: pgtest.Start(t, nil)}
	r.primary.Standby(t)
	r.base = r.primary.Migrated(t)
	r.pool = oneConnection(t, r.base)
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
	var conn *pgconn.PgConn
	_, err := pgsql.Native(t.Context(), r.pool, func(c *pgx.Conn) error {
		conn = c.PgConn()
		return nil
	})
	require.NoError(t, err)
	lookup := func() *idempotency.Response {
		found, err := r.Lookup(t.Context(), r.base.DB, key, one)
		require.NoError(t, err)
		return found
	}

	release := r.primary.Stall(t)
	ctx, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Complete(ctx, r.pool, key, one, idempotency.Response{Status: 409}) }()
	require.Eventually(t, func() bool { return r.waits(t, "%") == 1 }, time.Minute, 5*time.Millisecond)
	giveUp()
	require.ErrorIs(t, <-ended, context.Canceled)
	<-conn.CleanupDone() // a cancel request would have been sent
	require.Nil(t, lookup())
	require.Equal(t, 1, r.waits(t, "%"))
	release()
	require.Eventually(t, func() bool { return lookup() != nil }, time.Minute, 5*time.Millisecond)
}

// The session is ended while it waits for the standby. The repeat finds that the answer is written, and says so when the standby has it.
func TestRepeatedCompleteWaitsForTheStandby(t *testing.T) {
	r := newReplicated(t)
	c := claim(t, r.Store, r.pool, keyOf(t, r.Store, "k"), idempotency.WithLease(time.Hour))
	release := r.primary.Stall(t)
	ended := make(chan error, 1)
	go func() { ended <- c.Complete(t.Context(), r.pool, idempotency.Response{Status: 200}) }()
	require.Eventually(t, func() bool { return r.waits(t, "%") == 1 }, time.Minute, 5*time.Millisecond)
	require.Equal(t, 1, count(t, r.base, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))
	for r.waits(t, "%pg_logical_emit_message%") == 0 && soon(t.Context()) {
		select {
		case err := <-ended:
			require.Fail(t, "it has not waited", "%v", err)
		default:
		}
	}
	release()
	require.NoError(t, <-ended)
}
