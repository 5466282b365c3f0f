package migrations

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
)

//go:embed sql/*.sql
var files embed.FS

// FS holds the SQL files, "20261121000001_outbox.up.sql" and so on, to be applied in the order of their names.
func FS() fs.FS {
	sub, err := fs.Sub(files, "sql")
	if err != nil {
		panic(err) // cannot happen: the folder is embedded above
	}
	return sub
}

// Config sets where the tables are.
type Config struct {
	// Schema is the schema of the database that has the tables of oncebox. It is made if it does not exist. Default: oncebox if current_schema() of a
	// new connection is public, else that schema.
	Schema string
	// Logger gets one line per file that is applied, and the warning of [Verify]. Default: slog.Default().
	Logger *slog.Logger
}

// maxSchema is the longest name that PostgreSQL does not cut, in bytes.
const maxSchema = 63

// Validate returns an error if a field cannot be used.
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

const (
	schemaExists = `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)` // see tableExists
	lock         = `SELECT pg_advisory_xact_lock(hashtextextended('oncebox.migrations.' || $1, 0))`
)

// Up applies the files that were not applied yet. It makes nothing, and says what to do, if the schema has other tables
// with oncebox's names, or was made by another version of oncebox.
func Up(ctx context.Context, db *bun.DB, cfg *Config) error {
	s, err := look(ctx, db.DB, cfg)
	// The usual start of a service ends here, with two reads and without a lock.
	if err != nil || len(s.missing) == 0 {
		return err
	}
	// READ COMMITTED, whatever the server's default is: changes that another process has committed while this one
	// waited for the lock must be visible.
	tx, err := db.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return fmt.Errorf("migrations: begin: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // after COMMIT it does nothing; before it the first error counts

	// The lock is named after the schema, so installations in different schemas of one database do not wait
	// for each other.
	if _, err := tx.ExecContext(ctx, lock, s.schema); err != nil {
		return fmt.Errorf("migrations: lock: %w", err)
	}
	// Asked again under the lock: another process may have been faster.
	s, err = look(ctx, tx, &Config{Schema: s.schema})
	if err != nil {
		return err
	}
	// The database has files that this program does not know, and lacks files that it has: two versions branched.
	// Applying them out of order could break both.
	if len(s.unknown) > 0 && len(s.missing) > 0 {
		return s.complete()
	}
	if err := free(ctx, tx, s); err != nil {
		return err
	}
	if err := enter(ctx, tx, s); err != nil {
		return err
	}
	if err := apply(ctx, tx, s); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("migrations: commit: %w", err)
	}
	// Logged after the commit: before it the migration may still be rolled back.
	for _, name := range s.missing {
		cfg.logger().InfoContext(ctx, "oncebox: migration applied", "name", name, "schema", s.schema)
	}
	return nil
}

// enter creates the schema if it does not exist, and puts it first in the search_path, so that unqualified names mean it.
func enter(ctx context.Context, tx *sql.Tx, s *state) error {
	schema := quote(s.schema)
	// CREATE SCHEMA IF NOT EXISTS needs the right to make schemas even if the schema exists.
	var exists bool
	if err := tx.QueryRowContext(ctx, schemaExists, s.schema).Scan(&exists); err != nil {
		return fmt.Errorf("migrations: look for schema %q: %w", s.schema, err)
	}
	if !exists {
		if _, err := tx.ExecContext(ctx, "CREATE SCHEMA "+schema); err != nil {
			return mayNot(fmt.Sprintf("create schema %q", s.schema),
				"GRANT CREATE ON DATABASE "+quote(s.database)+" TO it, or CREATE SCHEMA "+schema+" AUTHORIZATION it", err)
		}
	}
	// Functions contain the name of the schema as this setting writes it.
	_, err := tx.ExecContext(ctx, "SET LOCAL quote_all_identifiers = off; SET LOCAL search_path = "+schema+", pg_temp")
	return wrap("set search_path", err)
}

// apply runs whole files. PostgreSQL runs DDL in the transaction, so a failure in the last file undoes the
// first as well.
func apply(ctx context.Context, tx *sql.Tx, s *state) error {
	for _, name := range s.missing {
		if _, err := tx.ExecContext(ctx, content(name)); err != nil {
			return mayNot(fmt.Sprintf("apply %s to schema %q", name, s.schema), "GRANT USAGE, CREATE ON SCHEMA "+quote(s.schema)+" TO it", err)
		}
	}
	return nil
}

// wrap says which call failed. For a missing right it adds who may grant it.
func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	if pgerr.Code(err) == pgerr.InsufficientPrivilege {
		err = pgerr.Explain(err)
	}
	return fmt.Errorf("migrations: %s: %w", what, err)
}

// mayNot adds the statement that gives the missing right to an error that it has caused. The future owner should make the tables,
// and not a role of the service.
func mayNot(what, grant string, err error) error {
	if pgerr.Code(err) == pgerr.InsufficientPrivilege {
		err = fmt.Errorf("%w: call it with the role that is to own the tables; if this role is, let an administrator run %s", err, grant)
	}
	return fmt.Errorf("migrations: %s: %w", what, err)
}

// names lists the files in the order in which they are applied. Their names begin with a date.
func names() []string {
	list, err := fs.Glob(FS(), "*.up.sql")
	if err != nil {
		panic(err) // cannot happen: the pattern is constant
	}
	slices.Sort(list)
	return list
}

// quote quotes an identifier (PostgreSQL, 4.1.1).
func quote(ident string) string { return `"` + strings.ReplaceAll(ident, `"`, `""`) + `"` }
