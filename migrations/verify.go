package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// MissingError means that files were not applied.
type MissingError struct {
	// Database and Schema are where the tables were expected.
	Database, Schema string
	// Missing are the files of this program that were not applied.
	Missing []string
	// Unknown are files that were applied and that this program does not have.
	Unknown []string
}

func (e *MissingError) Error() string {
	if len(e.Unknown) > 0 {
		return fmt.Sprintf("migrations: schema %q of the database %q was made by another version of oncebox: the migration files %s "+
			"were not applied, and this program does not have the applied files %s. Make the tables anew in an empty schema, or run the program that made them",
			e.Schema, e.Database, few(e.Missing), few(e.Unknown))
	}
	return fmt.Sprintf("migrations: schema %q of the database %q lacks the migrations %s: call migrations.Up (App.Migrate), or apply "+
		"the files of migrations.FS; if the tables are elsewhere, correct ONCEBOX_DATABASE_URL or ONCEBOX_SCHEMA",
		e.Schema, e.Database, strings.Join(e.Missing, ", "))
}

// Verify returns a [*MissingError] unless every file was applied, and a [*DifferenceError] if something is not as the files made it
// since: an index was dropped, a column altered, a function replaced or granted to every role, a right of the owner revoked. It asks
// PostgreSQL's catalog, which every role may read, and takes about 15 ms: call it at start or in a deployment. For probes
// there is [Applied].
//
// No difference are daily partitions, and what is added without harm: a plain index, a column that rows need not have, another value of
// a storage parameter, objects of other names. Not compared are the text of the view beyond its columns and what it reads, rows (the lanes,
// the layout), triggers of foreign keys that are disabled, and children by INHERITS. Nor is a database to which a newer program has
// applied files of its own.
//
// It logs a warning if PUBLIC may create objects in the schema: a function that somebody adds there may be called in place of the
// function that a statement means, with the rights of its caller (PostgreSQL, 10.3 and 5.9.6). It logs another warning if the role is called oncebox,
// and the service's own tables therefore go into the schema of oncebox.
func Verify(ctx context.Context, db *bun.DB, cfg *Config) error {
	s, err := look(ctx, db.DB, cfg)
	if err != nil {
		return err
	}
	if err := s.complete(); err != nil {
		return err
	}
	var open bool
	if err := db.DB.QueryRowContext(ctx, isOpen, s.schema).Scan(&open); err != nil {
		return wrap("read the rights of PUBLIC", err)
	}
	if open {
		cfg.logger().WarnContext(ctx, "oncebox: every role may create objects in the schema of the tables; such an object could run code with the "+
			"rights of other roles: REVOKE CREATE ON SCHEMA "+quote(s.schema)+" FROM PUBLIC, or use a schema of its own", "schema", s.schema)
	}
	alike, err := pgsql.NamedAlike(ctx, db.DB, s.schema)
	if err != nil {
		return wrap("read the role and the search_path", err)
	}
	if alike {
		cfg.logger().WarnContext(ctx, "oncebox: "+pgsql.NamedAlikeProblem+": "+pgsql.NamedAlikeMend)
	}
	if len(s.unknown) > 0 {
		return nil // files of a newer program may have changed anything
	}
	// What the tables should be is embedded in this program, so Verify needs no second database to compare with.
	facts, made := parse(tables), sources()
	relations, functions := ours(facts)
	p, got, err := read(ctx, db, s.schema, relations, functions)
	if err != nil {
		return err
	}
	if list := compare(p, made, p.of(facts, made), got); len(list) > 0 {
		return &DifferenceError{Schema: s.schema, Differences: list}
	}
	return nil
}

// Applied returns a [*MissingError] unless every file was applied. It compares nothing else, so that probes can ask for it often.
func Applied(ctx context.Context, db *bun.DB, cfg *Config) error {
	s, err := look(ctx, db.DB, cfg)
	if err != nil {
		return err
	}
	return s.complete()
}

// ours returns the names of the relations and functions in facts.
func ours(facts []fact) (relations, functions []string) {
	for _, f := range facts {
		switch f.kind {
		case tableFact, viewFact, sequenceFact:
			relations = append(relations, f.name)
		case functionFact:
			functions = append(functions, function(f.name))
		}
	}
	return relations, functions
}

// state is the result of comparing the applied files with those of this program.
type state struct {
	database string
	schema   string
	missing  []string // files of this program that were not applied
	unknown  []string // applied files that this program does not have
}

// complete returns nil if nothing is missing.
func (s *state) complete() error {
	if len(s.missing) == 0 {
		return nil
	}
	return &MissingError{Database: s.database, Schema: s.schema, Missing: s.missing, Unknown: s.unknown}
}

// querier is a pool or a transaction: Up looks once outside of its lock and once under it.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

const (
	// to_regclass is not used, because it answers from the session's cache, which may be older than a lock that was
	// waited for. The column is checked, too, because a table of somebody else may have the same name.
	tableExists = `
SELECT current_database(), EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
	WHERE n.nspname = $1 AND c.relname = 'oncebox_migrations' AND a.attname = 'name' AND a.atttypid = 'text'::regtype)`
	listApplied = `SELECT name FROM %s.oncebox_migrations`
	isOpen      = `SELECT has_schema_privilege('public', $1, 'CREATE')`
)

// resolve returns the schema of the tables.
func resolve(ctx context.Context, db querier, cfg *Config) (string, error) {
	if err := cfg.Validate(); err != nil {
		return "", err
	}
	if cfg != nil && cfg.Schema != "" {
		return cfg.Schema, nil
	}
	schema, err := pgsql.FindSchema(ctx, db)
	if err != nil {
		return "", fmt.Errorf("migrations: %w", err)
	}
	return schema, nil
}

// look reads which files were applied.
func look(ctx context.Context, db querier, cfg *Config) (*state, error) {
	schema, err := resolve(ctx, db, cfg)
	if err != nil {
		return nil, err
	}
	// All files count as missing until the table of applied files says otherwise.
	s := &state{schema: schema, missing: names()}
	var exists bool
	if err := db.QueryRowContext(ctx, tableExists, s.schema).Scan(&s.database, &exists); err != nil || !exists {
		return s, wrap("look for oncebox_migrations", err)
	}
	rows := pgsql.QueryPlain(ctx, db, fmt.Sprintf(listApplied, quote(s.schema)))
	applied, err := pgsql.Collect(rows, func(scan pgsql.Scan, name *string) error { return scan(name) })
	if err != nil {
		return nil, wrap("read oncebox_migrations", err)
	}
	for _, name := range applied {
		if n := slices.Index(s.missing, name); n >= 0 {
			s.missing = slices.Delete(s.missing, n, n+1)
		} else {
			s.unknown = append(s.unknown, name)
		}
	}
	slices.Sort(s.unknown)
	return s, nil
}
