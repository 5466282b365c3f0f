package pgsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
)

// DefaultSchema is the schema of the tables in place of public, which is for the tables of the service.
const DefaultSchema = "oncebox"

// findSchema reads the first schema of the initial search_path of a session, which the connection string, the role or the database sets. A later SET
// search_path or SET ROLE does not count, because services use both for a tenant. The statement resets search_path and role, reads the schema, and sets
// both back. Each CTE reads the CTE before it: this fixes the order of execution.
const findSchema = `
WITH was AS MATERIALIZED (SELECT current_setting('search_path') AS path, current_setting('role') AS role),
reset AS MATERIALIZED (SELECT path, role, set_config('role', NULL, true), set_config('search_path', NULL, true) FROM was),
found AS MATERIALIZED (SELECT path, role, current_schema()::text AS name FROM reset),
back AS MATERIALIZED (SELECT name, set_config('search_path', path, true), set_config('role', role, true) FROM found)
SELECT name FROM back`

// namedAlike finds the sessions of a role oncebox whose search_path begins with "$user".
const namedAlike = `
SELECT current_user = $1::text AND current_schema()::text = $1::text AND current_setting('search_path') LIKE '%$user%'`

// What operators read where [NamedAlike] is true.
const (
	NamedAlikeProblem = "the role is called " + DefaultSchema + ", as the schema of the tables, and the search_path has \"$user\": " +
		"each table that the role makes " +
		"without naming a schema goes into the schema of oncebox"
	NamedAlikeMend = "use a role of another name, or run ALTER ROLE " + DefaultSchema + " SET search_path = public; a table that is there already leaves " +
		"with ALTER TABLE " + DefaultSchema + ".name SET SCHEMA public"
)

// NamedAlike reports whether tables that a session of db makes without naming a schema go into the schema of the tables by mistake, because its role is
// called as the schema is. A service that has its own tables in another schema of its own name does so on purpose.
func NamedAlike(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, schema string,
) (alike bool, err error) {
	if schema != DefaultSchema {
		return false, nil
	}
	err = db.QueryRowContext(ctx, namedAlike, pgx.QueryExecModeExec, schema).Scan(&alike)
	return alike, err
}

// ErrNoSchema means that there is no schema in which the tables could be.
var ErrNoSchema = errors.New("the search_path names no existing schema: create one, or set Config.Schema")

// FindSchema returns the schema of the tables where none is configured: the first one of the search_path that the sessions of db begin with, or
// [DefaultSchema] if that is public.
func FindSchema(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
},
) (string, error) {
	return readSchema(db.QueryRowContext(ctx, findSchema, pgx.QueryExecModeExec))
}

// readSchema returns the schema that belongs to the first one of the search_path that exists. NULL means that none exists.
func readSchema(row interface{ Scan(dest ...any) error }) (string, error) {
	var name sql.NullString
	if err := row.Scan(&name); err != nil {
		return "", fmt.Errorf("read the schema of the connection: %w", err)
	}
	if !name.Valid {
		return "", ErrNoSchema
	}
	if name.String == "public" {
		return DefaultSchema, nil
	}
	return name.String, nil
}

// pgxHandles stands for the pool of transactions of pgx, bareHandles for that of transactions of database/sql that bun has not begun.
const (
	pgxHandles  = "pgx"
	bareHandles = "database/sql"
)

// places holds the schemas of the tables: the configured one, or one for each pool, which the first statement of the pool finds. If that statement
// fails, the next one tries again. A store may have several pools, and a dialect of bun belongs to one of them.
type places struct {
	words      []string // placeholders in the text of statements, and their texts, see New
	configured *Place
	found      sync.Map // pool -> *Place
	named      sync.Map // schema -> *Place
	first      atomic.Pointer[Place]
}

// Place is a schema.
type Place struct {
	words *strings.Replacer
	texts sync.Map // constant -> text with the schema in it
}

// newPlace prepares the replacement of {schema}, within literals and outside of them.
func newPlace(schema string, words []string) *Place {
	prefix := pgx.Identifier{schema}.Sanitize() + "."
	literal := strings.ReplaceAll(prefix, "'", "''")
	return &Place{words: strings.NewReplacer(append([]string{"'{schema}.", "'" + literal, "{schema}.", prefix}, words...)...)}
}

// Text replaces every "{schema}." in a statement, and the words of [New]. One within a literal has to be its beginning: '{schema}.t'.
func (p *Place) Text(constant string) string {
	if text, ok := p.texts.Load(constant); ok {
		return text.(string) //nolint:forcetypeassert // only strings are stored
	}
	text := p.words.Replace(constant)
	p.texts.Store(constant, text)
	return text
}

// of returns the place of a pool's tables. The database is asked once for each pool, because the search_path of its
// connections does not change.
func (s *places) of(pool any, ask func() (string, error)) (*Place, error) {
	if s.configured != nil {
		return s.configured, nil
	}
	if p, ok := s.found.Load(pool); ok {
		return p.(*Place), nil //nolint:forcetypeassert // only places are stored
	}
	name, err := ask()
	if err != nil {
		return nil, err
	}
	named, _ := s.named.LoadOrStore(name, newPlace(name, s.words))
	p := named.(*Place) //nolint:forcetypeassert // only places are stored
	s.found.Store(pool, p)
	s.first.CompareAndSwap(nil, p)
	return p, nil
}

// In returns the schema of the tables for a transaction, for callers that put a statement into a batch. Its parameter is not a bun.IDB, because
// converting a bun.Tx to one allocates an object, and In is called for each message.
func (r *Runner) In(ctx context.Context, tx bun.Tx) (*Place, error) {
	return r.places.of(poolOf(tx), func() (string, error) { return FindSchema(ctx, tx.Tx) })
}

// Text returns the text of a statement in the configured schema, or in the schema that was found first. If there is none yet, the text is returned
// unchanged, and every server refuses it.
func (r *Runner) Text(constant string) string {
	p := r.places.configured
	if p == nil {
		p = r.places.first.Load()
	}
	if p == nil {
		return constant
	}
	return p.Text(constant)
}

// TextFor returns the text of a statement for a handle.
func (r *Runner) TextFor(ctx context.Context, db bun.IDB, constant string) (string, error) {
	p, err := r.in(ctx, db)
	if err != nil {
		return "", err
	}
	return p.Text(constant), nil
}

// in finds the pool behind a handle, so that transactions share the answer of their pool.
func (r *Runner) in(ctx context.Context, db bun.IDB) (*Place, error) {
	var pool any = bareHandles
	switch v := db.(type) {
	case *bun.DB:
		pool = v.Dialect()
	case bun.Conn:
		pool = v.Dialect()
	case bun.Tx:
		pool = poolOf(v)
	case *bun.Tx:
		pool = poolOf(*v)
	}
	return r.places.of(pool, func() (string, error) {
		conn, err := unwrap(db)
		if err != nil {
			return "", err
		}
		return FindSchema(ctx, conn)
	})
}

func (r *Runner) inPgx(ctx context.Context, tx pgx.Tx) (*Place, error) {
	return r.places.of(pgxHandles, func() (string, error) { return readSchema(tx.QueryRow(ctx, findSchema, pgx.QueryExecModeExec)) })
}

// poolOf returns the identity of a transaction's pool. A bun.Tx that was made from a transaction of database/sql has no pool, and panics when it is
// asked.
func poolOf(tx bun.Tx) (pool any) {
	defer func() {
		if recover() != nil {
			pool = bareHandles
		}
	}()
	return tx.Dialect()
}
