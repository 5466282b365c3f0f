//go:build unix

package idempotency_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// An answer is stored without a transaction around it, and the caller gives up while the standby has not confirmed it. Nobody may find
// it and tell a client: the standby may take over without it.
func TestAnswerThatTheStandbyDoesNotConfirm(t *testing.T) {
	primary := pgtest.Start(t, nil)
	primary.Standby(t)
	base := primary.Migrated(t)
	cfg, err := pgx.ParseConfig(base.DSN)
	require.NoError(t, err)
	db := bun.NewDB(sql.OpenDB(pgsql.NewConnector(*cfg)), pgdialect.New())
	defer db.Close()
	store := idempotency.NewStore(&idempotency.Config{Schema: base.Schema})
	key, err := store.Key(idempotency.Scope{Tenant: "t", Anonymous: true, Method: "POST", Path: "/", Key: "k"})
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	var conn *pgconn.PgConn
	_, err = pgsql.Native(t.Context(), db, func(c *pgx.Conn) error {
		conn = c.PgConn()
		return nil
	})
	require.NoError(t, err)
	var fp idempotency.Fingerprint
	lookup := func() *idempotency.Response {
		found, err := store.Lookup(t.Context(), base.DB, key, fp)
		require.NoError(t, err)
		return found
	}
	waits := func() (n int) {
		require.NoError(t, base.NewRaw("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'").Scan(t.Context(), &n))
		return n
	}

	release := primary.Stall(t)
	ctx, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- store.Complete(ctx, db, key, fp, idempotency.Response{Status: 409}) }()
	require.Eventually(t, func() bool { return waits() == 1 }, time.Minute, 5*time.Millisecond)
	giveUp()
	require.ErrorIs(t, <-ended, context.Canceled)
	<-conn.CleanupDone() // a cancel request would have been sent
	require.Nil(t, lookup())
	require.Equal(t, 1, waits())
	release()
	require.Eventually(t, func() bool { return lookup() != nil }, time.Minute, 5*time.Millisecond)
}
