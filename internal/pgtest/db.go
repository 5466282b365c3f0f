package pgtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/migrations"
)

// maxConns is how many connections a test may open, so that parallel tests stay below the server's 400.
const maxConns = 20

// DB is a connection pool whose search_path begins with a schema that no other test uses.
type DB struct {
	*bun.DB

	// Schema is the name of the schema, safe in SQL without quotes.
	Schema string

	// DSN is the connection string of the pool, for further processes and pools of the test.
	DSN string
}

// Open makes an empty schema and a pool of up to 20 connections. Both are removed when the test ends.
func Open(t testing.TB) *DB {
	t.Helper()
	return open(t, URL(t))
}

func open(t testing.TB, server string) *DB {
	t.Helper()
	db := kept(t, server)
	// This runs before the pool is closed.
	t.Cleanup(func() { db.drop(t) })
	return db
}

// kept is Open for a server that ends with the test, so that nothing has to be removed.
func kept(t testing.TB, server string) *DB {
	t.Helper()
	schema := "test_" + strings.ToLower(rand.Text()[:16])
	dsn, err := withParams(server, url.Values{"search_path": {schema}, "default_query_exec_mode": {"exec"}})
	require.NoError(t, err)
	db := &DB{Schema: schema, DSN: dsn}
	db.DB = db.Another(t)
	_, err = db.ExecContext(t.Context(), "CREATE SCHEMA "+schema)
	require.NoError(t, err)
	return db
}

// Family is the set of tables that one file of package migrations makes. A test that needs only some of them is faster,
// because each table takes about a millisecond.
type Family string

// The families.
const (
	Outbox      Family = "outbox"
	Inbox       Family = "inbox"
	Idempotency Family = "idempotency"
)

// Migrated is Open with oncebox's tables: those of the families, or all if none is named.
func Migrated(t testing.TB, families ...Family) *DB {
	t.Helper()
	return migrated(t, URL(t), families...)
}

// MigratedAt is Migrated on another server.
func MigratedAt(t testing.TB, server string, families ...Family) *DB {
	t.Helper()
	return migrated(t, server, families...)
}

func migrated(t testing.TB, server string, families ...Family) *DB {
	t.Helper()
	db := open(t, server)
	db.migrate(t, families...)
	return db
}

func (db *DB) migrate(t testing.TB, families ...Family) {
	t.Helper()
	if len(families) > 0 {
		db.apply(t, families)
		return
	}
	err := migrations.Up(t.Context(), db.DB, &migrations.Config{Schema: db.Schema, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
}

// apply applies the migration files of some families, as any migration tool could.
func (db *DB) apply(t testing.TB, families []Family) {
	t.Helper()
	names, err := fs.Glob(migrations.FS(), "*.up.sql")
	require.NoError(t, err)
	var text strings.Builder
	for _, name := range names {
		_, family, _ := strings.Cut(strings.TrimSuffix(name, ".up.sql"), "_")
		if family == "oncebox" || slices.Contains(families, Family(family)) {
			file, err := fs.ReadFile(migrations.FS(), name)
			require.NoError(t, err)
			text.Write(file)
		}
	}
	_, err = db.DB.DB.ExecContext(t.Context(), text.String())
	require.NoError(t, err)
}

// Another opens another pool on the same schema, as a second process would. It is closed when the test ends.
func (db *DB) Another(t testing.TB) *bun.DB {
	t.Helper()
	pool, err := sql.Open("pgx", db.DSN)
	require.NoError(t, err)
	pool.SetMaxOpenConns(maxConns)
	pool.SetMaxIdleConns(maxConns)
	t.Cleanup(func() { _ = pool.Close() })
	return bun.NewDB(pool, pgdialect.New())
}

// drop removes the schema. It does not wait long if the test has left a transaction open.
func (db *DB) drop(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	err := despiteDeadlocks(ctx, func() error {
		_, err := db.ExecContext(ctx, "DROP SCHEMA "+db.Schema+" CASCADE")
		return err
	})
	if err != nil {
		t.Errorf("pgtest: drop the schema of the test, which may have left a transaction open: %v", err)
	}
}

// despiteDeadlocks calls fn again as long as PostgreSQL chooses it as the victim of a deadlock. The server may still run the last statements of relays
// and consumers whose contexts have ended, and these take the tables in another order.
func despiteDeadlocks(ctx context.Context, fn func() error) error {
	for {
		if err := fn(); pgerr.Code(err) != pgerr.Deadlock || ctx.Err() != nil {
			return err
		}
	}
}

func withParams(dsn string, params url.Values) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme == "" {
		return "", fmt.Errorf("pgtest: ONCEBOX_DATABASE_URL, or DATABASE_URL, has to be a URL, postgres://user:password@host:port/database: %w", err)
	}
	query := u.Query()
	maps.Copy(query, params)
	u.RawQuery = query.Encode()
	return u.String(), nil
}
