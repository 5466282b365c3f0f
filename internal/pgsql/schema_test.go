package pgsql_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// The schema is that of the connections, whatever the session or the transaction has set when it is asked for, and they are as before.
func TestSchemaIsThatOfTheConnections(t *testing.T) {
	for name, set := range map[string]string{
		"session": "SET search_path = tenant, pg_catalog", "transaction": "SET LOCAL search_path = tenant", "none": "SET search_path = ''",
		"role": "SET LOCAL ROLE pg_monitor; SET LOCAL search_path = '$user'", "temporary": "SET LOCAL search_path = pg_temp, tenant",
	} {
		for mode, run := range modes() {
			t.Run(name+" "+mode, func(t *testing.T) {
				db := pgtest.Open(t)
				const settings = "SELECT current_setting('search_path') || ' ' || current_setting('role')"
				var before, after string
				tx, err := db.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				defer tx.Rollback()
				_, err = tx.Exec("CREATE TEMPORARY TABLE t (x int); " + set)
				require.NoError(t, err)
				require.NoError(t, tx.NewRaw(settings).Scan(t.Context(), &before))
				_, err = run.Exec(t.Context(), tx, "SELECT 1")
				require.NoError(t, err)
				require.Equal(t, `"`+db.Schema+`".t`, run.Text("{schema}.t"))
				require.NoError(t, tx.NewRaw(settings).Scan(t.Context(), &after))
				require.Equal(t, before, after)
				require.NoError(t, tx.Commit())
			})
		}
	}
}

// A question that fails is asked again.
func TestSchemaIsFoundOnceTheDatabaseAnswers(t *testing.T) {
	db, run := pgtest.Open(t), pgsql.New("", false)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.Exec("SELECT 1 / 0")
	require.Error(t, err)
	_, err = run.In(t.Context(), tx)
	require.Error(t, err)
	require.Equal(t, "{schema}.t", run.Text("{schema}.t"), "no server takes it")
	require.NoError(t, tx.Rollback())
	tx, err = db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	place, err := run.In(t.Context(), tx)
	require.NoError(t, err)
	require.Equal(t, `"`+db.Schema+`".t`, place.Text("{schema}.t"))
}

func TestNoSchema(t *testing.T) {
	db := pgtest.Open(t)
	cfg, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	cfg.RuntimeParams["search_path"] = "no_such_schema"
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, pgsql.New("", false).QueryRowPgx(t.Context(), tx, "SELECT 1", nil), pgsql.ErrNoSchema)
	require.NoError(t, tx.Rollback(t.Context()))
}

// A store may be given several pools, and transactions that bun has not begun.
func TestEachPoolHasItsSchema(t *testing.T) {
	run := pgsql.New("", false)
	for range 2 {
		db := pgtest.Open(t)
		var schema string
		const where = "SELECT replace('{schema}.t', '\"', '')"
		require.NoError(t, run.QueryRow(t.Context(), db.DB, where, nil, &schema))
		require.Equal(t, db.Schema+".t", schema)
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, run.QueryRow(t.Context(), tx, where, nil, &schema))
		require.Equal(t, db.Schema+".t", schema)
		require.NoError(t, tx.Rollback())
	}
	db := pgtest.Open(t)
	tx, err := db.DB.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	place, err := run.In(t.Context(), bun.Tx{Tx: tx})
	require.NoError(t, err)
	require.Equal(t, `"`+db.Schema+`".t`, place.Text("{schema}.t"))
}
