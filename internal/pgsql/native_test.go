package pgsql_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
)

func TestNativeFindsPgxBeneathEveryPool(t *testing.T) {
	cfg, err := pgx.ParseConfig(pgtest.URL(t))
	require.NoError(t, err)
	ours := bun.NewDB(sql.OpenDB(pgsql.NewConnector(*cfg)), pgdialect.New())
	defer ours.Close()
	held, err := ours.Conn(t.Context())
	require.NoError(t, err)
	defer held.Close()
	for name, db := range map[string]bun.IDB{"pgx/stdlib": pgtest.Open(t).DB, "Connector": ours, "a connection of it": held} {
		var n int
		ok, err := pgsql.Native(t.Context(), db, func(conn *pgx.Conn) error {
			return conn.QueryRow(context.Background(), "SELECT 7").Scan(&n)
		})
		require.NoError(t, err, name)
		require.True(t, ok, name)
		require.Equal(t, 7, n, name)
	}
	tx, err := ours.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	ok, err := pgsql.Native(t.Context(), tx, func(*pgx.Conn) error { return nil })
	require.NoError(t, err)
	require.False(t, ok, "database/sql does not give away the connection of a transaction")
}
