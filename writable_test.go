package oncebox_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
)

func TestReadyNoticesADatabaseThatIsReadOnly(t *testing.T) {
	db := pgtest.OpenApart(t)
	// App keeps an answer for a moment: each look is that of another one.
	ready := func() error {
		app, err := oncebox.New(db.DB.DB, nil, apptest.Config())
		require.NoError(t, err)
		return app.Ready(t.Context(), oncebox.Cleaner)
	}
	require.NoError(t, ready())
	db.ReadOnly(t)
	await.True(t, func() bool { // connections that were ended report that first
		err := ready()
		return err != nil && strings.Contains(err.Error(), "takes no writes: it is read-only")
	}, "the app says that the database is read-only")
	db.Writable(t)
	await.True(t, func() bool { return ready() == nil }, "the app is ready again")
}

// Whatever asks for room gets the error of a full disk.
func TestReadyNoticesAFullDisk(t *testing.T) {
	db := pgtest.Migrated(t)
	cfg, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	cfg.RuntimeParams["search_path"] = db.Schema + ", pg_catalog" // functions of the schema come first
	pool := sql.OpenDB(stdlib.GetConnector(*cfg))
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	app, err := oncebox.New(bun.NewDB(pool, pgdialect.New()), nil, apptest.Config())
	require.NoError(t, err)

	plant := func(code string) {
		_, err := db.ExecContext(t.Context(), `CREATE OR REPLACE FUNCTION repeat(text, integer) RETURNS text LANGUAGE plpgsql AS $f$
BEGIN RAISE EXCEPTION 'planted' USING ERRCODE = '`+code+`'; END $f$`)
		require.NoError(t, err)
	}
	plant("53400")
	require.NoError(t, app.Ready(t.Context(), oncebox.Cleaner), "temp_file_limit says nothing about the disk")
	plant("53100")
	app, err = oncebox.New(bun.NewDB(pool, pgdialect.New()), nil, apptest.Config())
	require.NoError(t, err)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, app.Ready(gone, oncebox.Cleaner))
	require.ErrorContains(t, app.Ready(t.Context(), oncebox.Cleaner), "takes no writes")
	require.ErrorContains(t, app.Ready(t.Context(), oncebox.Cleaner), "53100")
}
