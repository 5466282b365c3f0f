package pgsql_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// prepared counts what the session behind db has prepared.
const prepared = `SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%$1::int + 40%'`

func TestPreparedOnceAndNeverBehindAPooler(t *testing.T) {
	for _, c := range []struct {
		name   string
		pooler bool
		want   int
	}{{"prepared", false, 1}, {"pooler", true, 0}} {
		t.Run(c.name, func(t *testing.T) {
			tx, err := pgtest.Open(t).BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer tx.Rollback()
			run := pgsql.New("", c.pooler)
			for range 3 {
				var n int
				require.NoError(t, run.QueryRow(t.Context(), tx, "SELECT $1::int + 40", []any{2}, &n))
				require.Equal(t, 42, n)
			}
			var n int
			require.NoError(t, tx.NewRaw(prepared).Scan(t.Context(), &n))
			require.Equal(t, c.want, n)
		})
	}
}

func TestSchemaIsPutIntoTheText(t *testing.T) {
	const statement = `SELECT {schema}.f({schema}.t.x) FROM {schema}.t`
	require.Equal(t, statement, pgsql.New("", false).Text(statement), "it is not known: a text that no server takes")
	require.Equal(t, `SELECT "s".f("s".t.x) FROM "s".t`, pgsql.New("s", false).Text(statement))
	run := pgsql.New(`a "b"; DROP`, false)
	require.Equal(t, `SELECT "a ""b""; DROP".f("a ""b""; DROP".t.x) FROM "a ""b""; DROP".t`, run.Text(statement))
	require.Equal(t, `SELECT '"it''s".t'::regclass, '', "it's".f('')`, pgsql.New(`it's`, false).Text(`SELECT '{schema}.t'::regclass, '', {schema}.f('')`))
	first := run.Text(statement)
	require.Equal(t, first, run.Text(statement), "the second time from memory")
}

func TestSchemaIsFoundWithoutASearchPath(t *testing.T) {
	opened := pgtest.Open(t)
	db, run := opened.DB, pgsql.New(opened.Schema+`_q"x`, false)
	exec := func(query string) {
		t.Helper()
		_, err := run.Exec(t.Context(), db, query)
		require.NoError(t, err)
	}
	exec(`CREATE SCHEMA "` + opened.Schema + `_q""x"`)
	defer exec(`DROP SCHEMA "` + opened.Schema + `_q""x" CASCADE`)
	exec(`CREATE TABLE {schema}.t (x int)`)

	n, err := run.Exec(t.Context(), db, `INSERT INTO {schema}.t SELECT unnest($1::int[])`, []int32{1, 2, 3})
	require.NoError(t, err)
	require.EqualValues(t, 3, n, "Exec returns how many rows it touched")

	rows := run.Query(t.Context(), db, `SELECT x FROM {schema}.t WHERE x > $1 ORDER BY x`, 1)
	got, err := pgsql.Collect(rows, func(scan pgsql.Scan, x *int) error { return scan(x) })
	require.NoError(t, err)
	require.Equal(t, []int{2, 3}, got)
}

func TestEveryHandleOfBunIsUnwrapped(t *testing.T) {
	db := pgtest.Open(t).DB
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	savepoint, err := tx.BeginTx(t.Context(), nil)
	require.NoError(t, err)

	for _, handle := range []bun.IDB{db, conn, tx, &tx, savepoint} {
		t.Run(fmt.Sprintf("%T", handle), func(t *testing.T) {
			var n int
			require.NoError(t, pgsql.New("", false).QueryRow(t.Context(), handle, "SELECT $1::int", []any{7}, &n))
			require.Equal(t, 7, n)
		})
	}
}

// wrapped is a handle that a program wrapped itself.
type wrapped struct{ bun.IDB }

func TestUnknownHandleIsRefused(t *testing.T) {
	run, ctx := pgsql.New("", false), context.Background()
	_, err := run.Exec(ctx, wrapped{}, "SELECT 1")
	require.ErrorContains(t, err, "pgsql_test.wrapped is neither")
	err = pgsql.Each(run.Query(ctx, wrapped{}, "SELECT 1"), nil)
	require.ErrorContains(t, err, "pass the handle that bun gave you")
	require.Error(t, run.QueryRow(ctx, wrapped{}, "SELECT 1", nil))
	_, err = run.Exec(ctx, nil, "SELECT 1")
	require.Error(t, err)
}

func TestTransactionIsUsed(t *testing.T) {
	opened := pgtest.Open(t)
	db, run := opened.DB, pgsql.New(opened.Schema, false)
	_, err := run.Exec(t.Context(), db, `CREATE TABLE {schema}.t (x int)`)
	require.NoError(t, err)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = run.Exec(t.Context(), tx, `INSERT INTO {schema}.t VALUES ($1)`, 1)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())

	var n int
	require.NoError(t, run.QueryRow(t.Context(), db, `SELECT count(*) FROM {schema}.t`, nil, &n))
	require.Zero(t, n)
}
