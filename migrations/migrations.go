package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"

	"github.com/uptrace/bun"
)

//go:embed sql/*.sql
var files embed.FS

// FS holds the SQL files, "20261121000001_outbox.up.sql" and so on, to be applied in the order of their names.
func FS() fs.FS {
	sub, err := fs.Sub(files, "sql")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	return sub
}

// Config says where the tables are.
type Config struct {
	// Schema holds the tables; it is created if need be. Default: the first one of the connection's search_path.
	Schema string
	// Logger gets one line per file that is applied, and the warning of [Verify]. Default: slog.Default().
	Logger *slog.Logger
}

// maxSchema is the longest name that PostgreSQL does not cut, in bytes.
const maxSchema = 63

// Validate says what is wrong with the configuration.
func (c *Config) Validate() error {
	if c != nil && (len(c.Schema) > maxSchema || strings.ContainsRune(c.Schema, 0)) {
		return fmt.Errorf("migrations: Config.Schema %q: a name has at most %d bytes and no NUL", c.Schema, maxSchema)
	}
	return nil
}

func (c *Config) logger() *slog.Logger {
	if c == nil || c.Logger == nil {
		return slog.Default()
	}
	return c.Logger
}

// MissingError means that the database is behind the program.
type MissingError struct {
	Schema  string
	Missing []string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("migrations: schema %q lacks %s: call migrations.Up (App.Migrate), or apply the files of migrations.FS",
		e.Schema, strings.Join(e.Missing, ", "))
}

const (
	resolveSchema = `SELECT coalesce(nullif($1, ''), current_schema())`
	schemaExists  = `SELECT to_regnamespace(quote_ident($1)) IS NOT NULL`
	tableExists   = `SELECT to_regclass(quote_ident($1) || '.oncebox_migrations') IS NOT NULL`
	listApplied   = `SELECT name FROM %s.oncebox_migrations`
	isOpen        = `SELECT has_schema_privilege('public', $1, 'CREATE')`
	lock          = `SELECT pg_advisory_xact_lock(hashtextextended('oncebox.migrations.' || $1, 0))`
)

// Up applies what is missing.
func Up(ctx context.Context, db *bun.DB, cfg *Config) error {
	schema, missing, err := pending(ctx, db.DB, cfg)
	if err != nil || len(missing) == 0 {
		return err
	}
	// READ COMMITTED whatever the server's default is: what another process committed while this one waited for the lock
	// must be seen.
	tx, err := db.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return fmt.Errorf("migrations: begin: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // after COMMIT it does nothing; before it the first error counts

	if _, err := tx.ExecContext(ctx, lock, schema); err != nil {
		return fmt.Errorf("migrations: lock: %w", err)
	}
	if err := enter(ctx, tx, schema); err != nil {
		return err
	}
	// Looked up again under the lock: another process may have been faster.
	_, missing, err = pending(ctx, tx, &Config{Schema: schema})
	if err != nil {
		return err
	}
	if err := apply(ctx, tx, schema, missing); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("migrations: commit: %w", err)
	}
	for _, name := range missing {
		cfg.logger().InfoContext(ctx, "oncebox: migration applied", "name", name, "schema", schema)
	}
	return nil
}

// enter makes the schema if need be, and makes it the one that unqualified names mean.
func enter(ctx context.Context, tx *sql.Tx, schema string) error {
	// CREATE SCHEMA IF NOT EXISTS asks for the right to make one even where it is there.
	var exists bool
	if err := tx.QueryRowContext(ctx, schemaExists, schema).Scan(&exists); err != nil {
		return fmt.Errorf("migrations: look for schema %q: %w", schema, err)
	}
	if !exists {
		if _, err := tx.ExecContext(ctx, "CREATE SCHEMA "+quote(schema)); err != nil {
			return fmt.Errorf("migrations: create schema %q: %w", schema, err)
		}
	}
	_, err := tx.ExecContext(ctx, "SET LOCAL search_path = "+quote(schema)+", pg_temp")
	return wrap("set search_path", err)
}

func apply(ctx context.Context, tx *sql.Tx, schema string, missing []string) error {
	for _, name := range missing {
		text, err := fs.ReadFile(FS(), name)
		if err != nil {
			return fmt.Errorf("migrations: read %s: %w", name, err)
		}
		if _, err := tx.ExecContext(ctx, string(text)); err != nil {
			return fmt.Errorf("migrations: apply %s to schema %q: %w", name, schema, err)
		}
	}
	return nil
}

// Verify returns a [*MissingError] unless every file was applied. It logs a warning if PUBLIC may create objects in the schema:
// a function that somebody adds there may be called in place of one that a statement means, with the rights of its caller
// (PostgreSQL, 10.3 and 5.9.6).
func Verify(ctx context.Context, db *bun.DB, cfg *Config) error {
	schema, missing, err := pending(ctx, db.DB, cfg)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return &MissingError{Schema: schema, Missing: missing}
	}
	var open bool
	if err := db.DB.QueryRowContext(ctx, isOpen, schema).Scan(&open); err != nil {
		return wrap("ask for the rights of PUBLIC", err)
	}
	if open {
		cfg.logger().WarnContext(ctx, "oncebox: every role may create objects in the schema of the tables, and so run code as others: "+
			"REVOKE CREATE ON SCHEMA ... FROM PUBLIC, or use a schema of its own", "schema", schema)
	}
	return nil
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// pending returns the schema's real name and the files that were not applied to it.
func pending(ctx context.Context, db querier, cfg *Config) (schema string, missing []string, err error) {
	if err := cfg.Validate(); err != nil {
		return "", nil, err
	}
	configured := ""
	if cfg != nil {
		configured = cfg.Schema
	}
	var resolved sql.NullString
	if err := db.QueryRowContext(ctx, resolveSchema, configured).Scan(&resolved); err != nil {
		return "", nil, fmt.Errorf("migrations: ask the database for its schema: %w", err)
	}
	if !resolved.Valid {
		return "", nil, errors.New("migrations: the search_path names no existing schema: create one, or set Config.Schema")
	}
	schema, missing = resolved.String, names()
	var exists bool
	if err := db.QueryRowContext(ctx, tableExists, schema).Scan(&exists); err != nil || !exists {
		return schema, missing, wrap("look for oncebox_migrations", err)
	}
	rows, err := db.QueryContext(ctx, fmt.Sprintf(listApplied, quote(schema)))
	if err != nil {
		return "", nil, fmt.Errorf("migrations: read oncebox_migrations: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return "", nil, fmt.Errorf("migrations: read oncebox_migrations: %w", err)
		}
		missing = slices.DeleteFunc(missing, func(n string) bool { return n == name })
	}
	return schema, missing, wrap("read oncebox_migrations", rows.Err())
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("migrations: %s: %w", what, err)
}

func names() []string {
	list, err := fs.Glob(FS(), "*.up.sql")
	if err != nil {
		panic(err) // the pattern is constant
	}
	slices.Sort(list)
	return list
}

func quote(ident string) string { return `"` + strings.ReplaceAll(ident, `"`, `""`) + `"` }
