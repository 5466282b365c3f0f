package pgsql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
)

const three = "SELECT generate_series(1, 3)"

func TestEachRowIsRead(t *testing.T) {
	db, run := pgtest.Open(t).DB, pgsql.New("", false)
	sum := 0
	require.NoError(t, pgsql.Each(run.Query(t.Context(), db, three), func(scan pgsql.Scan) error {
		var n int
		err := scan(&n)
		sum += n
		return err
	}))
	require.Equal(t, 6, sum)

	found, err := pgsql.One(run.Query(t.Context(), db, three), func(scan pgsql.Scan) error { return scan(&sum) })
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, 1, sum, "of several rows the first")

	found, err = pgsql.One(run.Query(t.Context(), db, "SELECT 1 WHERE false"), func(scan pgsql.Scan) error { return scan(&sum) })
	require.NoError(t, err)
	require.False(t, found)
}

func TestMap(t *testing.T) {
	db, run := pgtest.Open(t).DB, pgsql.New("", false)
	all, err := pgsql.Map[int](run.Query(t.Context(), db, "SELECT name, n FROM (VALUES ('a', 1), ('b', 2)) v(name, n)"))
	require.NoError(t, err)
	require.Equal(t, map[string]int{"a": 1, "b": 2}, all)

	all, err = pgsql.Map[int](run.Query(t.Context(), db, "SELECT 'a', 1 WHERE false"))
	require.NoError(t, err)
	require.Equal(t, map[string]int{}, all)

	all, err = pgsql.Map[int](run.Query(t.Context(), db, "SELECT 'n' || n, 1 / (2 - n) FROM generate_series(1, 3) n"))
	require.Equal(t, "22012", pgerr.Code(err))
	require.Nil(t, all, "the first row was read, and is not returned")
}

// However reading ends, the rows are closed: a transaction takes the next statement.
func TestRowsAreClosed(t *testing.T) {
	db, run, ours := pgtest.Open(t), pgsql.New("", false), errors.New("ours")
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	read := func(n *int) func(pgsql.Scan) error {
		return func(pgsql.Scan) error { *n++; return ours }
	}
	for name, of := range map[string]func(*pgsql.Rows, *int) error{
		"Each": func(rows *pgsql.Rows, n *int) error { return pgsql.Each(rows, read(n)) },
		"One":  func(rows *pgsql.Rows, n *int) error { _, err := pgsql.One(rows, read(n)); return err },
		"Collect": func(rows *pgsql.Rows, n *int) error {
			list, err := pgsql.Collect(rows, func(scan pgsql.Scan, _ *int) error { return read(n)(scan) })
			require.Nil(t, list)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			require.ErrorIs(t, of(run.Query(t.Context(), tx, three), &calls), ours)
			require.Equal(t, 1, calls, "it stops at the first error")
			_, err := run.Exec(t.Context(), tx, "SELECT 1")
			require.NoError(t, err)
		})
	}
}

// The error of a statement comes with its rows, wherever it is found out.
func TestRowsHaveTheErrorOfTheirStatement(t *testing.T) {
	db, run := pgtest.Open(t).DB, pgsql.New("", false)
	for query, code := range map[string]string{
		"SELECT 1 FROM no_such_table":                     "42P01",
		"SELECT 1 / (2 - n) FROM generate_series(1, 3) n": "22012", // after the first row
	} {
		err := pgsql.Each(run.Query(t.Context(), db, query), func(scan pgsql.Scan) error { return scan(new(int)) })
		require.Equal(t, code, pgerr.Code(err))
		_, err = pgsql.Collect(run.Query(t.Context(), db, query), func(scan pgsql.Scan, n *int) error { return scan(n) })
		require.Equal(t, code, pgerr.Code(err))
		_, err = pgsql.One(run.Query(t.Context(), db, query), func(scan pgsql.Scan) error { return scan(new(int)) })
		require.Equal(t, code, pgerr.Code(err))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	found, err := pgsql.One(run.Query(ended, db, three), func(pgsql.Scan) error { return nil })
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, found)
}

// Where a statement of a pool needs a transaction of its own, it is committed when the rows were read.
func TestRowsAreCommitted(t *testing.T) {
	db := pgtest.Open(t)
	_, err := db.Exec("CREATE TABLE t (n int)")
	require.NoError(t, err)
	cfg, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	cfg.RuntimeParams["default_transaction_isolation"] = "serializable"
	pool := bun.NewDB(sql.OpenDB(pgsql.NewConnector(*cfg)), pgdialect.New())
	defer pool.Close()
	const insert = "INSERT INTO t SELECT generate_series(1, 3) RETURNING n"
	for name, of := range map[string]func(rows *pgsql.Rows, ours error) error{
		"Each": func(rows *pgsql.Rows, ours error) error {
			return pgsql.Each(rows, func(pgsql.Scan) error { return ours })
		},
		"One": func(rows *pgsql.Rows, ours error) error {
			_, err := pgsql.One(rows, func(pgsql.Scan) error { return ours })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := db.Exec("TRUNCATE t")
			require.NoError(t, err)
			run, ours := pgsql.New("", false), errors.New("ours")
			require.ErrorIs(t, of(run.Query(t.Context(), pool, insert), ours), ours)
			require.Zero(t, count(t, db))
			require.NoError(t, of(run.Query(t.Context(), pool, insert), nil))
			require.Equal(t, 3, count(t, db))
		})
	}
}
