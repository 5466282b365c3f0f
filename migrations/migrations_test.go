package migrations_test

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/migrations"
)

// applied counts the files that Up says it applied.
type applied struct {
	slog.Handler
	n *atomic.Int64
}

func newApplied() applied { return applied{slog.DiscardHandler, &atomic.Int64{}} }

func (applied) Enabled(context.Context, slog.Level) bool { return true }

func (a applied) Handle(context.Context, slog.Record) error {
	a.n.Add(1)
	return nil
}

// quiet is the default configuration without log lines.
func quiet() *migrations.Config {
	return &migrations.Config{Logger: slog.New(slog.DiscardHandler)}
}

func files(t *testing.T) []string {
	t.Helper()
	names, err := fs.Glob(migrations.FS(), "*.up.sql")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	return names
}

func text(t *testing.T, name string) string {
	t.Helper()
	content, err := fs.ReadFile(migrations.FS(), name)
	require.NoError(t, err)
	return string(content)
}

func exec(t *testing.T, db bun.IDB, query string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), query, args...)
	require.NoError(t, err)
}

func scan[T any](t *testing.T, db bun.IDB, query string, args ...any) (v T) {
	t.Helper()
	require.NoError(t, db.NewRaw(query, args...).Scan(t.Context(), &v))
	return v
}

func relations(t *testing.T, db bun.IDB, schema string) int {
	t.Helper()
	return scan[int](t, db, "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace(?)", schema)
}

// pool opens one more pool to the server of db, with other settings.
func pool(t *testing.T, db *pgtest.DB, params map[string]string) *bun.DB {
	t.Helper()
	u, err := url.Parse(db.DSN)
	require.NoError(t, err)
	q := u.Query()
	for name, value := range params {
		q.Set(name, value)
	}
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // PostgreSQL's URLs know no other space
	p, err := sql.Open("pgx", u.String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return bun.NewDB(p, pgdialect.New())
}

func TestUpTwice(t *testing.T) {
	for _, c := range []struct{ name, configured, mode string }{
		{"by configuration", "yes", "exec"},
		{"by search_path", "", "exec"},
		{"prepared statements", "", "cache_statement"},
		{"simple protocol", "yes", "simple_protocol"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			opened := pgtest.Open(t)
			db, log := pool(t, opened, map[string]string{"default_query_exec_mode": c.mode}), newApplied()
			cfg := &migrations.Config{Logger: slog.New(log)}
			if c.configured != "" {
				cfg.Schema = opened.Schema
			}
			for range 2 {
				require.NoError(t, migrations.Up(t.Context(), db, cfg))
				require.NoError(t, migrations.Verify(t.Context(), db, cfg))
				require.EqualValues(t, len(files(t)), log.n.Load(), "each file once")
			}
			require.Equal(t, len(files(t)), scan[int](t, db, "SELECT count(*) FROM oncebox_migrations"))
			require.Equal(t, 64, scan[int](t, db, "SELECT count(*) FROM outbox_lane"))
		})
	}
}

func TestUpMakesTheSchema(t *testing.T) {
	opened := pgtest.Open(t)
	cfg := &migrations.Config{Schema: opened.Schema + `_New "x"`, Logger: quiet().Logger}
	quoted := `"` + strings.ReplaceAll(cfg.Schema, `"`, `""`) + `"`

	var missing *migrations.MissingError
	require.ErrorAs(t, migrations.Verify(t.Context(), opened.DB, cfg), &missing)
	require.Equal(t, cfg.Schema, missing.Schema)
	require.Equal(t, scan[string](t, opened, "SELECT current_database()"), missing.Database)
	require.ErrorContains(t, missing, fmt.Sprintf("schema %q of the database %q lacks ", missing.Schema, missing.Database))
	require.Equal(t, files(t), missing.Missing)

	require.NoError(t, migrations.Up(t.Context(), opened.DB, cfg))
	defer exec(t, opened, "DROP SCHEMA "+quoted+" CASCADE")
	require.NoError(t, migrations.Verify(t.Context(), opened.DB, cfg))
	require.NoError(t, migrations.Up(t.Context(), opened.DB, cfg))
	require.Equal(t, 64, scan[int](t, opened, "SELECT count(*) FROM "+quoted+".outbox_lane"))
	require.Zero(t, relations(t, opened, opened.Schema), "nothing in the search_path's own schema")
	require.Equal(t, opened.Schema, scan[string](t, opened, "SELECT current_schema()"), "the session's search_path is as it was")
	require.True(t, scan[bool](t, opened, "SELECT "+quoted+".outbox_make_partition('2026-11-21')"))
}

func TestOneOfManyApplies(t *testing.T) {
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			opened, log := pgtest.Open(t), newApplied()
			cfg := &migrations.Config{Schema: opened.Schema + "_many", Logger: slog.New(log)}
			defer exec(t, opened, "DROP SCHEMA "+cfg.Schema+" CASCADE")
			var wg sync.WaitGroup
			errs := make([]error, 8)
			for i := range errs {
				db := pool(t, opened, map[string]string{"default_transaction_isolation": level})
				wg.Go(func() { errs[i] = migrations.Up(t.Context(), db, cfg) })
			}
			wg.Wait()
			for _, err := range errs {
				require.NoError(t, err)
			}
			require.EqualValues(t, len(files(t)), log.n.Load(), "exactly one applied")
			require.NoError(t, migrations.Verify(t.Context(), opened.DB, cfg))
		})
	}
}

// awaitSessions waits until n sessions of the pool that is named after the schema wait in one way.
func awaitSessions(t *testing.T, opened *pgtest.DB, n int, waiting, what string) {
	t.Helper()
	await.True(t, func() bool {
		return n == scan[int](t, opened, "SELECT count(*) FROM pg_stat_activity WHERE application_name = ? AND "+waiting, opened.Schema)
	}, "%s", what)
}

func TestFailedUpLeavesNothingBehind(t *testing.T) {
	opened := pgtest.Open(t)
	// A name that is taken and not seen yet.
	tx, err := opened.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	exec(t, tx, "CREATE TYPE inbox AS ENUM ('mine')")
	db := pool(t, opened, map[string]string{"application_name": opened.Schema})
	done := make(chan error, 1)
	go func() { done <- migrations.Up(t.Context(), db, &migrations.Config{Schema: opened.Schema}) }()
	awaitSessions(t, opened, 1, "wait_event = 'transactionid'", "Up to wait for the transaction that makes the type")
	require.NoError(t, tx.Commit())
	require.ErrorContains(t, await.Receive(t, done, "Up to fail"),
		"migrations: apply 20261121000002_inbox.up.sql to schema \""+opened.Schema+"\"")
	require.Zero(t, relations(t, opened, opened.Schema), "nothing of the files before it")

	exec(t, opened, "DROP TYPE inbox")
	require.NoError(t, migrations.Up(t.Context(), opened.DB, quiet()), "and it can be tried again")
}

// Up names what is in its way before it makes anything.
func TestNamesThatAreTaken(t *testing.T) {
	opened := pgtest.Open(t)
	for _, c := range []struct{ make, says, rename string }{
		{"CREATE TABLE inbox (mine int)", "table inbox.", "ALTER TABLE " + opened.Schema + ".inbox RENAME TO mine"},
		{"CREATE VIEW outbox AS SELECT 1 AS one", "view outbox.", "ALTER VIEW " + opened.Schema + ".outbox RENAME TO my_view"},
		{"CREATE TABLE other (id int); CREATE INDEX outbox_dead_id ON other (id)", "index outbox_dead_id.",
			"ALTER INDEX " + opened.Schema + ".outbox_dead_id RENAME TO my_index"},
		{"CREATE FUNCTION inbox_enter(int) RETURNS int LANGUAGE sql AS 'SELECT 1'", "function inbox_enter.",
			"ALTER ROUTINE " + opened.Schema + ".inbox_enter(integer) RENAME TO my_function"},
		{"CREATE PROCEDURE inbox_gate(int) LANGUAGE sql AS 'SELECT 1'", "function inbox_gate.",
			"ALTER ROUTINE " + opened.Schema + ".inbox_gate(integer) RENAME TO my_procedure"},
		{"CREATE TABLE oncebox_migrations (version int)", "table oncebox_migrations.",
			"ALTER TABLE " + opened.Schema + ".oncebox_migrations RENAME TO my_migrations"},
		{"CREATE TYPE inbox AS ENUM ('mine')", "type inbox.", "ALTER TYPE " + opened.Schema + ".inbox RENAME TO my_enum"},
		{"CREATE DOMAIN outbox_dead AS int", "type outbox_dead.", "ALTER TYPE " + opened.Schema + ".outbox_dead RENAME TO my_domain"},
	} {
		exec(t, opened, c.make)
		before := relations(t, opened, opened.Schema)
		err := migrations.Up(t.Context(), opened.DB, &migrations.Config{Schema: opened.Schema})
		require.ErrorContains(t, err, `migrations: schema "`+opened.Schema+`" already has objects with names that oncebox needs`)
		require.ErrorContains(t, err, c.says)
		require.ErrorContains(t, err, "Config.Schema, ONCEBOX_SCHEMA")
		var missing *migrations.MissingError
		require.ErrorAs(t, migrations.Verify(t.Context(), opened.DB, nil), &missing)
		statement, _, _ := strings.Cut(c.rename, " RENAME TO ")
		require.ErrorContains(t, err, statement)
		require.Equal(t, before, relations(t, opened, opened.Schema))
		exec(t, opened, c.rename)
	}
	require.NoError(t, migrations.Up(t.Context(), opened.DB, quiet()))
	require.NoError(t, migrations.Verify(t.Context(), opened.DB, nil))

	exec(t, opened, "DELETE FROM oncebox_migrations WHERE name LIKE '%outbox%'")
	require.ErrorContains(t, migrations.Up(t.Context(), opened.DB, quiet()), " more. Nothing was changed", "five of all of them")
}

// A table that was renamed keeps the names of its indexes, which are those of our primary keys.
func TestTableThatWasRenamed(t *testing.T) {
	opened := pgtest.Open(t)
	exec(t, opened, "CREATE TABLE outbox_held (id int PRIMARY KEY)")
	exec(t, opened, "ALTER TABLE outbox_held RENAME TO my_held")
	require.NoError(t, migrations.Up(t.Context(), opened.DB, quiet()))
	require.Equal(t, "outbox_held_pkey1", scan[string](t, opened,
		"SELECT conname FROM pg_constraint WHERE conrelid = 'outbox_held'::regclass AND contype = 'p'"))
	require.NoError(t, migrations.Verify(t.Context(), opened.DB, nil))
}

// Files that this program does not have, beside files that it lacks: these are the tables of another program.
func TestTablesOfOtherFiles(t *testing.T) {
	opened := pgtest.Open(t)
	exec(t, opened, "CREATE TABLE oncebox_migrations (name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())")
	exec(t, opened, "INSERT INTO oncebox_migrations VALUES ('20261121000001_outbox.up.sql'), ('20261121000004_outbox_audit.up.sql')")
	for _, err := range []error{migrations.Verify(t.Context(), opened.DB, nil), migrations.Up(t.Context(), opened.DB, quiet())} {
		var missing *migrations.MissingError
		require.ErrorAs(t, err, &missing)
		require.Equal(t, []string{"20261121000004_outbox_audit.up.sql"}, missing.Unknown)
		require.ErrorContains(t, err, "Make the tables anew in an empty schema")
	}
	require.Equal(t, 2, relations(t, opened, opened.Schema), "nothing was made beside the table and its index")
}

func TestCancelledUpLeavesNothingBehind(t *testing.T) {
	opened := pgtest.Open(t)
	tx, err := opened.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	exec(t, tx, "SELECT pg_advisory_xact_lock(hashtextextended('oncebox.migrations.' || ?, 0))", opened.Schema)

	db := pool(t, opened, map[string]string{"application_name": opened.Schema})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- migrations.Up(ctx, db, nil) }()
	awaitSessions(t, opened, 1, "wait_event = 'advisory'", "Up to wait for the lock")
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Zero(t, relations(t, opened, opened.Schema))
}

func TestVerifySaysWhatToDo(t *testing.T) {
	opened := pgtest.Open(t)
	err := migrations.Verify(t.Context(), opened.DB, nil)
	var missing *migrations.MissingError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, opened.Schema, missing.Schema)
	require.ErrorContains(t, err, "call migrations.Up (App.Migrate)")
	require.ErrorContains(t, err, files(t)[0])

	require.NoError(t, migrations.Up(t.Context(), opened.DB, quiet()))
	last := files(t)[len(files(t))-1]
	exec(t, opened, "DELETE FROM oncebox_migrations WHERE name = ?", last)
	require.ErrorAs(t, migrations.Verify(t.Context(), opened.DB, nil), &missing)
	require.Equal(t, []string{last}, missing.Missing, "only what is missing")
}

// An older program meets the tables of a newer one, whose files may have changed anything.
func TestNewerDatabaseIsFine(t *testing.T) {
	opened := pgtest.Migrated(t)
	exec(t, opened, "DROP INDEX outbox_held_due")
	exec(t, opened, "INSERT INTO oncebox_migrations VALUES ('29990101000000_newer.up.sql')")
	require.NoError(t, migrations.Verify(t.Context(), opened.DB, nil))
	require.NoError(t, migrations.Up(t.Context(), opened.DB, nil))
}

func TestNoSchemaAtAll(t *testing.T) {
	opened := pgtest.Open(t)
	db := pool(t, opened, map[string]string{"search_path": "no_such_schema"})
	for _, err := range []error{migrations.Up(t.Context(), db, nil), migrations.Verify(t.Context(), db, nil)} {
		require.ErrorContains(t, err, "the search_path names no existing schema: create one, or set Config.Schema")
	}
}

func TestSchemaNameIsValidated(t *testing.T) {
	for _, name := range []string{strings.Repeat("x", 64), "a\x00b"} {
		cfg := &migrations.Config{Schema: name}
		require.ErrorContains(t, cfg.Validate(), "migrations: Config.Schema")
		require.Error(t, migrations.Up(t.Context(), pgtest.Open(t).DB, cfg))
	}
	require.NoError(t, (&migrations.Config{Schema: strings.Repeat("x", 63)}).Validate())
	require.NoError(t, (*migrations.Config)(nil).Validate())
}

func TestUnreachableDatabase(t *testing.T) {
	db := pgtest.Open(t).Another(t)
	require.NoError(t, db.Close())
	require.ErrorContains(t, migrations.Up(t.Context(), db, nil), "migrations: read the schema of the connection")
	require.ErrorContains(t, migrations.Verify(t.Context(), db, nil), "migrations: ")
}

// Any tool may apply the files; each one enters itself.
func TestFilesInPlainOrder(t *testing.T) {
	opened := pgtest.Open(t)
	for _, name := range files(t) {
		_, err := opened.DB.DB.ExecContext(t.Context(), text(t, name)) // one statement after the other, as psql does
		require.NoError(t, err, name)
	}
	require.NoError(t, migrations.Verify(t.Context(), opened.DB, nil))
	log := newApplied()
	require.NoError(t, migrations.Up(t.Context(), opened.DB, &migrations.Config{Logger: slog.New(log)}))
	require.Zero(t, log.n.Load(), "nothing is left to apply")
	require.Equal(t, files(t), scanAll[string](t, opened, "SELECT name FROM oncebox_migrations ORDER BY name"))
}

func scanAll[T any](t *testing.T, db bun.IDB, query string, args ...any) (all []T) {
	t.Helper()
	require.NoError(t, db.NewRaw(query, args...).Scan(t.Context(), &all))
	return all
}

// Tools that apply files know them by their numbers.
func TestNumbersAreUnique(t *testing.T) {
	seen := map[string]string{}
	for _, name := range files(t) {
		number, _, _ := strings.Cut(name, "_")
		require.Empty(t, seen[number], name)
		seen[number] = name
	}
}

func TestFilesNameNoSchema(t *testing.T) {
	for _, name := range files(t) {
		for _, word := range []string{"public.", "CREATE SCHEMA", "search_path TO", "COMMIT;", "BEGIN;"} {
			require.NotContains(t, text(t, name), word, name)
		}
	}
}
