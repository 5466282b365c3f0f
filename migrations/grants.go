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

// Duty is the set of things that a role of the database does with the tables. The owner needs no grants.
type Duty string

// The duties, see [Grants].
const (
	// Service relays events, handles messages, keeps idempotency keys, cleans up, and decides about dead letters:
	// everything that an App and the command oncebox do, except [Up].
	Service Duty = "service"
	// Writer only commits events through this module. It cannot remove any.
	Writer Duty = "writer"
	// Caller adds events with the SQL function oncebox_add: a writer in another language, or a role whose statements
	// fire a trigger that calls it.
	Caller Duty = "caller"
	// Reader reads everything and changes nothing.
	Reader Duty = "reader"
)

// Duties lists all duties.
func Duties() []Duty { return []Duty{Service, Writer, Caller, Reader} }

// Privileges and kinds of objects, in the words of GRANT (PostgreSQL, 5.8).
const (
	mayUse     = "USAGE"
	mayRead    = "SELECT"
	mayAdd     = "INSERT"
	mayChange  = "UPDATE"
	mayRemove  = "DELETE"
	mayExecute = "EXECUTE"

	onSchema   = "SCHEMA"
	onSequence = "SEQUENCE"
	onFunction = "FUNCTION"
)

// migrationsTable says which files were applied. Only the owner writes to it.
const migrationsTable = "oncebox_migrations"

// rights are privileges on objects of one kind, as in a GRANT statement. Tables and views need no kind.
type rights struct {
	privileges []string
	kind       string
	objects    []string
}

// rightsOf returns the rights that a duty needs.
func rightsOf(d Duty) []rights {
	tables, sequences := named(tableFact), named(sequenceFact)
	// Only the owner may write to the list of applied files. Up and Verify believe what it says.
	tables = slices.DeleteFunc(tables, func(name string) bool { return name == migrationsTable })
	schema := rights{[]string{mayUse}, onSchema, nil}
	switch d {
	case Service:
		return []rights{
			schema,
			{[]string{mayRead}, "", append(named(viewFact), migrationsTable)},
			{[]string{mayRead, mayAdd, mayChange, mayRemove}, "", tables},
			{[]string{mayUse, mayRead}, onSequence, sequences},
			{[]string{mayExecute}, onFunction, definers()},
		}
	case Writer:
		// Rows of the outbox cannot be changed or deleted by a writer, so a writer that was broken into
		// cannot take events back.
		return []rights{
			schema,
			{[]string{mayRead}, "", []string{migrationsTable, "oncebox_settings"}},
			{[]string{mayRead, mayAdd}, "", []string{"outbox", "outbox_tenant"}},
			{[]string{mayRead, mayAdd, mayChange}, "", []string{"outbox_dedup"}},
			{[]string{mayUse}, onSequence, []string{"outbox_moves", "outbox_seq"}},
			{[]string{mayExecute}, onFunction, []string{"outbox_first_lane"}},
		}
	case Caller:
		return []rights{schema, {[]string{mayExecute}, onFunction, []string{"oncebox_add"}}}
	case Reader:
		return []rights{
			schema,
			{[]string{mayRead}, "", slices.Concat(named(viewFact), []string{migrationsTable}, tables)},
			{[]string{mayRead}, onSequence, sequences},
			{[]string{mayExecute}, onFunction, []string{"outbox_claimed"}}, // the views call it
		}
	default:
		return nil
	}
}

// named lists the objects of a kind that Up makes.
func named(kind string) (list []string) {
	for _, f := range parse(tables) {
		if f.kind == kind {
			list = append(list, f.name)
		}
	}
	return list
}

// definers lists functions that run with the owner's rights, and that only roles with a grant may call.
func definers() (list []string) {
	for _, f := range parse(tables) {
		if f.kind == functionFact && strings.Contains(f.definition, " SECURITY DEFINER") {
			name, _, _ := strings.Cut(f.name, "(")
			list = append(list, name)
		}
	}
	return list
}

// Grants returns the statements that give a role what a duty needs. They name each object, so that they give no right to other
// tables of the schema. Run them as the owner of the tables, and again after an update that brought tables or functions: granting twice
// changes nothing. It asks the database for the schema only.
func Grants(ctx context.Context, db *bun.DB, cfg *Config, d Duty, role string) ([]string, error) {
	schema, err := grantedSchema(ctx, db, cfg, d)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, r := range rightsOf(d) {
		list = append(list, r.grant(schema, strings.Join(r.privileges, ", "), role))
	}
	return list, nil
}

const (
	// roleName returns the role of the session, which SET ROLE may have changed.
	roleName = `SELECT current_user`
	// lacked lists the privileges on objects that the role does not have. Functions with the same name are
	// granted together.
	lacked = `
SELECT p, o FROM unnest($1::text[]) WITH ORDINALITY o(o, n), unnest($2::text[]) WITH ORDINALITY p(p, m)
WHERE NOT CASE $3::text
	WHEN 'SCHEMA' THEN has_schema_privilege($4::text, p)
	WHEN 'FUNCTION' THEN coalesce((SELECT bool_and(has_function_privilege(f.oid, p)) FROM pg_proc f
		WHERE f.proname = o AND f.pronamespace = (SELECT s.oid FROM pg_namespace s WHERE s.nspname = $4::text)), true)
	WHEN 'SEQUENCE' THEN coalesce((SELECT has_sequence_privilege(c.oid, p) FROM pg_class c
		WHERE c.relname = o AND c.relkind = 'S' AND c.relnamespace = (SELECT s.oid FROM pg_namespace s WHERE s.nspname = $4::text)), true)
	ELSE coalesce((SELECT has_table_privilege(c.oid, p) FROM pg_class c
		WHERE c.relname = o AND c.relkind <> 'S' AND c.relnamespace = (SELECT s.oid FROM pg_namespace s WHERE s.nspname = $4::text)), true)
END ORDER BY m, n`
)

// MissingGrants returns the statements that give the role of the connection the rights that it lacks for a duty.
// Objects that do not exist are left out: see [Verify].
func MissingGrants(ctx context.Context, db *bun.DB, cfg *Config, d Duty) ([]string, error) {
	schema, err := grantedSchema(ctx, db, cfg, d)
	if err != nil {
		return nil, err
	}
	var role string
	if err := db.DB.QueryRowContext(ctx, roleName).Scan(&role); err != nil {
		return nil, wrap("read the name of the role", err)
	}
	var list []string
	for _, r := range rightsOf(d) {
		missing, err := r.lacked(ctx, db.DB, schema)
		if err != nil {
			return nil, wrap("read the rights of the role", err)
		}
		for _, privilege := range r.privileges {
			if objects := missing[privilege]; len(objects) > 0 {
				list = append(list, rights{kind: r.kind, objects: objects}.grant(schema, privilege, role))
			}
		}
	}
	return list, nil
}

// lacked lists the objects by the privilege that the role does not have.
func (r rights) lacked(ctx context.Context, db *sql.DB, schema string) (map[string][]string, error) {
	objects := r.objects
	if r.kind == onSchema {
		objects = []string{schema}
	}
	missing := map[string][]string{}
	rows := pgsql.QueryPlain(ctx, db, lacked, objects, r.privileges, r.kind, schema)
	err := pgsql.Each(rows, func(scan pgsql.Scan) error {
		var privilege, object string
		if err := scan(&privilege, &object); err != nil {
			return err
		}
		missing[privilege] = append(missing[privilege], object)
		return nil
	})
	return missing, err
}

// grant returns the GRANT statement.
func (r rights) grant(schema, privileges, role string) string {
	var on []string
	for _, object := range r.objects {
		on = append(on, quote(schema)+"."+quote(object))
	}
	if r.kind == onSchema {
		on = []string{quote(schema)}
	}
	return "GRANT " + privileges + " ON " + strings.TrimLeft(r.kind+" ", " ") + strings.Join(on, ", ") + " TO " + quote(role)
}

func grantedSchema(ctx context.Context, db *bun.DB, cfg *Config, d Duty) (string, error) {
	if rightsOf(d) == nil {
		return "", fmt.Errorf("migrations: there is no duty %q: it is one of %v", d, Duties())
	}
	return resolve(ctx, db.DB, cfg)
}
