package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
)

// templates are databases that this process has migrated, by their families. [Migrated] copies them, because a copy takes a
// sixth of the time of the migrations and of DROP SCHEMA. The variable is global for the reason given at shared.
var templates struct {
	sync.Mutex
	byFamilies map[string]*template
}

// template is a database with oncebox's tables, to which nobody is connected.
type template struct{ database, schema string }

// templateOf returns the template of some families. The first call makes it.
func templateOf(t testing.TB, families []Family) *template {
	t.Helper()
	templates.Lock()
	defer templates.Unlock()
	key := fmt.Sprint(slices.Sorted(slices.Values(families)))
	if made := templates.byFamilies[key]; made != nil {
		return made
	}
	made := &template{database: newName(), schema: newName()}
	onServer(t, "CREATE DATABASE "+made.database)
	db := inSchema(t, at(t, URL(t), made.database), made.schema)
	_, err := db.ExecContext(t.Context(), "CREATE SCHEMA "+made.schema)
	require.NoError(t, err)
	db.migrate(t, families...)
	require.NoError(t, db.Close())
	if templates.byFamilies == nil {
		templates.byFamilies = map[string]*template{}
	}
	templates.byFamilies[key] = made
	return made
}

// rename gives the schema of a copy a name of its own, as the migrations would have. Only functions contain the name: PostgreSQL stores all
// else by number.
const rename = `
SET check_function_bodies = off;
ALTER SCHEMA %[1]s RENAME TO %[2]s;
DO $rename$
DECLARE definition text;
BEGIN
	FOR definition IN SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = '%[2]s'::regnamespace LOOP
		IF strpos(definition, '%[1]s') > 0 THEN
			EXECUTE replace(definition, '%[1]s', '%[2]s');
		END IF;
	END LOOP;
END $rename$`

// copied makes a database that is a copy of a template. It is dropped when the test ends.
func copied(t testing.TB, from *template) *DB {
	t.Helper()
	name := newName()
	onServer(t, "CREATE DATABASE "+name+" TEMPLATE "+from.database)
	t.Cleanup(func() { dropDatabase(t, name) }) // after the pools are closed, which are opened later
	db := inSchema(t, at(t, URL(t), name), newName())
	conn, err := pgx.Connect(t.Context(), db.URL)
	require.NoError(t, err)
	_, err = conn.PgConn().Exec(t.Context(), fmt.Sprintf(rename, from.schema, db.Schema)).ReadAll()
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	return db
}

const openTransactions = `SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND xact_start IS NOT NULL AND backend_type = 'client backend'`

// dropDatabase drops a database. Sessions may be left, of processes that were killed, but no transaction: a test that leaves one open fails.
func dropDatabase(t testing.TB, name string) {
	t.Helper()
	defer onServer(t, "DROP DATABASE "+name+" WITH (FORCE)")
	ctx := context.Background() // that of the test has ended
	conn, err := pgx.Connect(ctx, URL(t))
	require.NoError(t, err)
	defer conn.Close(ctx)
	await.True(t, func() bool {
		var open int
		require.NoError(t, conn.QueryRow(ctx, openTransactions, name).Scan(&open))
		return open == 0
	}, "the transactions that the test has left open end")
}

// dropTemplates drops the databases that no test will copy any more.
func dropTemplates(ctx context.Context, server string) error {
	templates.Lock()
	defer templates.Unlock()
	if len(templates.byFamilies) == 0 {
		return nil
	}
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return fmt.Errorf("pgtest: connect to drop the templates: %w", err)
	}
	defer conn.Close(ctx)
	for _, made := range templates.byFamilies {
		if _, err := conn.Exec(ctx, "DROP DATABASE "+made.database+" WITH (FORCE)"); err != nil {
			return fmt.Errorf("pgtest: drop a template: %w", err)
		}
	}
	templates.byFamilies = nil
	return nil
}

// newName returns a name that nothing else on the server has, safe in SQL without quotes.
func newName() string { return "test_" + strings.ToLower(rand.Text()[:16]) }
