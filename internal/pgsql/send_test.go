package pgsql_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// Callbacks get the same on a connection that can send several statements in one round trip, and on one that cannot.
func TestSend(t *testing.T) {
	for name, connector := range map[string]func(pgx.ConnConfig) *sql.DB{
		"one round trip":  func(cfg pgx.ConnConfig) *sql.DB { return sql.OpenDB(pgsql.NewConnector(cfg)) },
		"behind a pooler": func(cfg pgx.ConnConfig) *sql.DB { return sql.OpenDB(pgsql.NewConnector(cfg, pgsql.BehindPooler())) },
		"somebody else's": func(cfg pgx.ConnConfig) *sql.DB { return stdlib.OpenDB(cfg) },
	} {
		t.Run(name, func(t *testing.T) {
			db := pgtest.Open(t)
			_, err := db.Exec("CREATE TABLE t (n int)")
			require.NoError(t, err)
			c, tx := begun(t, db, connector)
			require.Equal(t, name == "one round trip", pgsql.CanPipeline(c))

			var one, skipped string
			var raw []string
			var nulls, rest int
			b := &pgsql.Batch{}
			b.Queue("INSERT INTO t VALUES ($1::int), (2), (3)", 1)
			b.Query(func(row *pgsql.Result) error { return row.One(&one, nil) }, "SELECT n::text, 'x' FROM t ORDER BY n")
			b.Query(func(rows *pgsql.Result) error {
				for rows.Next() {
					if values := rows.RawValues(); values[0] == nil {
						nulls++
						raw = append(raw, string(values[1]))
						continue
					}
					if err := rows.Scan(nil, &skipped); err != nil {
						return err
					}
					rest++
				}
				return rows.Err()
			}, "SELECT nullif(n, 2), n::text FROM t ORDER BY n")
			b.Queue("DELETE FROM t WHERE n = 3")
			require.NoError(t, pgsql.Send(t.Context(), c, tx, b))
			require.Equal(t, "1", one)
			require.Equal(t, []string{"2"}, raw)
			require.Equal(t, []int{1, 2}, []int{nulls, rest})
			require.Equal(t, "3", skipped)

			nothing := &pgsql.Batch{}
			nothing.Query(func(row *pgsql.Result) error { return row.One(new(int)) }, "SELECT n FROM t WHERE n = 9")
			require.ErrorIs(t, pgsql.Send(t.Context(), c, tx, nothing), pgx.ErrNoRows)

			called := false
			failing := &pgsql.Batch{}
			failing.Query(func(rows *pgsql.Result) error {
				for rows.Next() {
					continue
				}
				return rows.Err()
			}, "SELECT 1 / n FROM (VALUES (0)) v (n)")
			failing.Query(func(*pgsql.Result) error { called = true; return nil }, "SELECT 1")
			require.Equal(t, "22012", pgerr.Code(pgsql.Send(t.Context(), c, tx, failing)))
			require.False(t, called, "the first error ends it")
			require.NoError(t, tx.Rollback())
			require.Zero(t, count(t, db))
		})
	}
}

// begun begins a transaction on a connection of a pool of its own.
func begun(t *testing.T, db *pgtest.DB, connector func(pgx.ConnConfig) *sql.DB) (bun.Conn, bun.Tx) {
	t.Helper()
	cfg, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	pool := bun.NewDB(connector(*cfg), pgdialect.New())
	t.Cleanup(func() { _ = pool.Close() })
	c, err := pool.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	tx, err := c.BeginTx(pgsql.BeginLater(t.Context(), time.Minute), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return c, tx
}
