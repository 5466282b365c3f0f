package adopt

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// table is a table as the catalog describes it.
type table struct {
	schema, name string
	columns      []column
	key          []string // the columns of the primary key, or of another unique index without NULL
}

// column is a column of a table.
type column struct {
	name string
	kind string // the name of its type, or of the type beneath a domain: text, jsonb, timestamptz
	typ  string // its type with the schema, in quotes, for casts
	// notNull says that the column is never NULL. generated says that nobody can write to it.
	notNull, generated bool
}

const (
	// findTable looks for an ordinary or a partitioned table. Rows of views and of foreign tables have no place that stays the same.
	findTable = `
SELECT c.oid::bigint, n.nspname::text, c.relkind::text, row_security_active(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = $2 AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND CASE WHEN $1 = '' THEN pg_table_is_visible(c.oid) ELSE n.nspname = $1 END`

	// nearNames finds other spellings of a name, and other schemas.
	nearNames = `
SELECT coalesce(string_agg(quote_ident(n.nspname) || '.' || quote_ident(c.relname), ', ' ORDER BY 1), '')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND replace(lower(c.relname), '_', '') = replace(lower($1), '_', '') AND n.nspname NOT LIKE 'pg\_%'`

	listColumns = `
SELECT a.attname::text, coalesce(b.typname, t.typname)::text, quote_ident(n.nspname) || '.' || quote_ident(t.typname), a.attnotnull, a.attgenerated <> ''
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace n ON n.oid = t.typnamespace
LEFT JOIN pg_type b ON b.oid = t.typbasetype AND t.typtype = 'd'
WHERE a.attrelid = $1::bigint::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`

	findKey = `
SELECT coalesce((
	SELECT string_agg(a.attname, E'\n' ORDER BY k.n) FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, n)
	JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum), '')
FROM pg_index i WHERE i.indrelid = $1::bigint::oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
	AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) AND NOT a.attnotnull)
ORDER BY i.indisprimary DESC, i.indexrelid LIMIT 1`
)

// ErrNoTable is the error of [New] for a mapping that names no table of the database.
var ErrNoTable = errors.New("there is no table")

// lookUp describes the table that a mapping names.
func lookUp(ctx context.Context, db querier, named string) (*table, error) {
	schema, name, err := splitTable(named)
	if err != nil {
		return nil, fmt.Errorf("adopt: mapping: table: %w", err)
	}
	t := &table{name: name}
	var oid int64
	var kind string
	var hidden bool
	err = db.QueryRowContext(ctx, findTable, pgx.QueryExecModeExec, schema, name).Scan(&oid, &t.schema, &kind, &hidden)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, notThere(ctx, db, named, name)
	}
	if err != nil {
		return nil, wrap("look for the table "+named, err)
	}
	switch {
	case kind != "r" && kind != "p":
		return nil, fmt.Errorf("adopt: %s is a view or a foreign table: name the table that has its rows", t.label())
	case hidden:
		return nil, fmt.Errorf("adopt: row security hides rows of %s from this role, and they would never be published: "+
			"run as the owner of the table, or as a role with BYPASSRLS", t.label())
	}
	err = pgsql.Each(pgsql.QueryPlain(ctx, db, listColumns, pgx.QueryExecModeExec, oid), func(scan pgsql.Scan) error {
		var c column
		err := scan(&c.name, &c.kind, &c.typ, &c.notNull, &c.generated)
		t.columns = append(t.columns, c)
		return err
	})
	if err != nil {
		return nil, wrap("read the columns of "+named, err)
	}
	var key string
	err = db.QueryRowContext(ctx, findKey, pgx.QueryExecModeExec, oid).Scan(&key)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, wrap("read the keys of "+named, err)
	}
	if key != "" {
		t.key = strings.Split(key, "\n")
	}
	return t, nil
}

// querier is a pool or a transaction of database/sql.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// notThere returns the error for a table that does not exist, with the names that it may have.
func notThere(ctx context.Context, db querier, named, name string) error {
	var near string
	if err := db.QueryRowContext(ctx, nearNames, pgx.QueryExecModeExec, name).Scan(&near); err != nil {
		return wrap("look for tables like "+named, err)
	}
	if near == "" {
		return fmt.Errorf("adopt: %w %s: name it with its schema, as in app.outbox", ErrNoTable, named)
	}
	return fmt.Errorf("adopt: %w %s in that place. There is: %s", ErrNoTable, named, near)
}

// column returns a column, or an error that lists the columns that there are.
func (t *table) column(name string) (*column, error) {
	at := slices.IndexFunc(t.columns, func(c column) bool { return c.name == name })
	if at < 0 {
		names := make([]string, len(t.columns))
		for i := range t.columns {
			names[i] = t.columns[i].name
		}
		return nil, fmt.Errorf("the table %s has no column %q; it has %s", t.label(), name, strings.Join(names, ", "))
	}
	return &t.columns[at], nil
}

// label is the name of the table for people and for the ids of its rows.
func (t *table) label() string { return t.schema + "." + t.name }

// mapped is the name of the table as a mapping writes it.
func (t *table) mapped() string { return quotedName(t.schema) + "." + quotedName(t.name) }

// sql is the name of the table in statements.
func (t *table) sql() string { return ident(t.schema) + "." + ident(t.name) }

// ident quotes an identifier (PostgreSQL, 4.1.1).
func ident(name string) string { return pgx.Identifier{name}.Sanitize() }

// literal quotes a text (PostgreSQL, 4.1.2.1). E and doubled backslashes make it the same whatever standard_conforming_strings is.
func literal(text string) string {
	quoted := "'" + strings.ReplaceAll(text, "'", "''") + "'"
	if strings.Contains(text, `\`) {
		return "E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}
