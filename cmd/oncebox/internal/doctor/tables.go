package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/migrations"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/outbox/adopt"
)

func tableChecks() []check {
	return []check{
		{"tables", (*examination).tables},
		{"schema", (*examination).schema},
		{"grants", needsTables((*examination).grants)},
		{"partitions", needsTables((*examination).partitions)},
		{"deployment", needsTables((*examination).deployment)},
		{"pauses", needsTables((*examination).pauses)},
		{"keys", needsTables((*examination).keys)},
		{"adopted", needsTables((*examination).adopted)},
	}
}

// hasTables returns whether the schema has tables of oncebox, of any version: each version has this one.
const hasTables = `SELECT to_regclass(quote_ident($1::text) || '.oncebox_migrations') IS NOT NULL`

// hasTables returns whether there are tables of oncebox, of any version. If no schema can have them, there are none.
func (e *examination) hasTables(ctx context.Context) (there bool, err error) {
	schema, err := e.schemaOfTables(ctx)
	if errors.Is(err, pgsql.ErrNoSchema) {
		return false, nil
	}
	if err == nil {
		err = e.scan(ctx, hasTables, []any{schema}, &there)
	}
	return there, err
}

// schemaOfTables returns the configured schema, or the schema that the store and the inbox find.
func (e *examination) schemaOfTables(ctx context.Context) (string, error) {
	if e.Config.Schema != "" {
		return e.Config.Schema, nil
	}
	return pgsql.FindSchema(ctx, e.DB.DB)
}

// needsTables makes a check that finds nothing if there are no tables at all: the check "tables" reports
// that once, in place of every check.
func needsTables(run func(*examination, context.Context) ([]Finding, error)) func(*examination, context.Context) ([]Finding, error) {
	return func(e *examination, ctx context.Context) ([]Finding, error) {
		if there, err := e.hasTables(ctx); err != nil || !there {
			return nil, err
		}
		return run(e, ctx)
	}
}

func (e *examination) migrations() *migrations.Config {
	return &migrations.Config{Schema: e.Config.Schema, Logger: e.Config.Telemetry.Logger}
}

// tables compares the tables with the result of the migrations. If they are missing it looks for them in other
// schemas first: making new ones would hide a wrong ONCEBOX_SCHEMA.
func (e *examination) tables(ctx context.Context) ([]Finding, error) {
	err := migrations.Verify(ctx, e.DB, e.migrations())
	if differs, ok := errors.AsType[*migrations.DifferenceError](err); ok {
		var found []Finding
		for _, d := range differs.Differences {
			found = append(found, finding("tables", Problem, d.Mend, "%s: %s", d.Object, d.Problem))
		}
		return found, nil
	}
	if missing, ok := errors.AsType[*migrations.MissingError](err); ok {
		elsewhere, err := e.list(ctx, otherSchemas, 1, missing.Schema)
		if err != nil {
			return nil, err
		}
		if len(elsewhere) > 0 {
			return []Finding{e.inAnotherSchema(missing, elsewhere)}, nil
		}
		return []Finding{finding("tables", Problem, "oncebox migrate up", "%v", missing)}, nil
	}
	return nil, err
}

// otherSchemas lists other schemas with tables of oncebox. It lists none if the configured schema has tables as well,
// of an older version for example.
const otherSchemas = `
SELECT n.nspname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = 'oncebox_migrations'
	AND to_regclass(quote_ident($1::text) || '.oncebox_migrations') IS NULL ORDER BY 1`

// inAnotherSchema returns the finding for tables that exist in another schema than ONCEBOX_SCHEMA or the
// search_path says.
func (e *examination) inAnotherSchema(missing error, elsewhere [][]string) Finding {
	var names []string
	for _, row := range elsewhere {
		names = append(names, row[0])
	}
	return finding("tables", Problem, "set ONCEBOX_SCHEMA to that schema; oncebox migrate up, if new ones are meant",
		"%v; the schema %s has tables of oncebox", missing, strings.Join(names, ", "))
}

// openSchema returns whether every role may create objects in the schema of the tables.
const openSchema = `
SELECT has_schema_privilege('public', n.oid, 'CREATE') FROM pg_namespace n
WHERE n.nspname = $1::text`

// schema finds a schema in which every role may create objects. A function there with the name of a function that a statement calls would run
// with the rights of that statement's role. It also finds a role that is called as the schema.
func (e *examination) schema(ctx context.Context) ([]Finding, error) {
	name, err := e.schemaOfTables(ctx)
	var open bool
	if err == nil {
		err = e.scan(ctx, openSchema, []any{name}, &open)
	}
	// A missing schema is reported by the check "tables".
	if errors.Is(err, pgsql.ErrNoSchema) || errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	var alike bool
	if err == nil {
		alike, err = pgsql.NamedAlike(ctx, e.DB.DB, name)
	}
	if err != nil {
		return nil, err
	}
	var found []Finding
	if open {
		found = append(found, finding("schema", Problem, fmt.Sprintf("REVOKE CREATE ON SCHEMA %q FROM PUBLIC", name),
			"every role may create objects in the schema %s; such an object could run code with the rights of the roles that use the schema", name))
	}
	if alike {
		found = append(found, finding("schema", Problem, pgsql.NamedAlikeMend, "%s", pgsql.NamedAlikeProblem))
	}
	return found, nil
}

// grants finds rights that the role of the connection lacks. Rights beyond its duty are no finding.
func (e *examination) grants(ctx context.Context) ([]Finding, error) {
	missing, err := migrations.MissingGrants(ctx, e.DB, e.migrations(), e.Duty)
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	return []Finding{finding("grants", Problem, strings.Join(missing, "; "),
		"the database role of this connection lacks rights that the duty %s needs", e.Duty)}, nil
}

// adopted looks at the old tables that are taken over.
func (e *examination) adopted(ctx context.Context) ([]Finding, error) {
	states, err := adopt.States(ctx, e.store)
	var found []Finding
	for n := range states {
		found = append(found, adoption(&states[n], e.Now())...)
	}
	return found, err
}

// absent lists the daily partitions of today and tomorrow that do not exist. Those of the inbox are made by consumers, so a database whose inbox was
// never used needs none.
const absent = `
SELECT p || '_' || to_char(d, 'YYYYMMDD'), 'SELECT ' || f || '(''' || d::date || ''')'
FROM (VALUES ('outbox', 'outbox_make_partition'), ('outbox_progress', 'outbox_make_partition'),
	('outbox_sent', 'outbox_make_partition'), ('inbox', 'inbox_make_partition')) v (p, f),
	generate_series((clock_timestamp() AT TIME ZONE 'UTC')::date, (clock_timestamp() AT TIME ZONE 'UTC')::date + 1, interval '1 day') d
WHERE to_regclass(quote_ident($1::text) || '.' || p || '_' || to_char(d, 'YYYYMMDD')) IS NULL
	AND (p <> 'inbox' OR EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1::text AND c.relkind = 'r'
			AND (c.relname ~ '^inbox_[0-9]{8}$' OR c.relname = 'inbox_default' AND pg_relation_size(c.oid) > 0)))
ORDER BY 1`

// partitions finds missing daily partitions. Rows of those days go to the default partition, whose rows
// have to be deleted one by one.
func (e *examination) partitions(ctx context.Context) ([]Finding, error) {
	schema, err := e.schemaOfTables(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := e.list(ctx, absent, 2, schema)
	var found []Finding
	for _, row := range rows {
		found = append(found, finding("partitions", Warning, row[1]+"; normally the relay or the cleaner creates it: their log says why they did not",
			"the partition %s is missing: its rows go to the default partition, where they are deleted one by one, which is slow", row[0]))
	}
	return found, err
}

// deployment finds a database that belongs to another deployment, for example a copy of the production database for a
// test. No events are published from it, on purpose.
func (e *examination) deployment(ctx context.Context) ([]Finding, error) {
	owner, err := e.store.Upkeep().Deployment(ctx)
	if err != nil || owner == "" || owner == e.Config.Outbox.Deployment {
		return nil, err
	}
	return []Finding{finding("deployment", Problem, "correct ONCEBOX_OUTBOX_DEPLOYMENT; or, if this database is a copy that shall publish from now on, "+
		"call Store.Upkeep().TakeOwnership", "the database belongs to deployment %q, but ONCEBOX_OUTBOX_DEPLOYMENT is %q: nothing is published from this "+
		"database", owner,
		e.Config.Outbox.Deployment)}, nil
}

// mayLook reports whether the duty of the role includes reading waiting events and pauses.
func (e *examination) mayLook() bool {
	return e.Duty != migrations.Writer && e.Duty != migrations.Caller
}

// keys finds waiting events that were changed by hand, or restored only in part.
func (e *examination) keys(ctx context.Context) (found []Finding, err error) {
	if !e.mayLook() {
		return nil, nil
	}
	list, err := e.store.State().Disorder(ctx)
	for _, d := range list {
		found = append(found, finding("keys", Problem, d.Mend, "in the outbox, %s: %d, such as %q", d.Problem, d.Count, d.Example))
	}
	return found, err
}

// pauses finds tenants and consumers that were paused so long ago that it was probably forgotten. A pause with an end is a finding, too: its end may be far
// away.
func (e *examination) pauses(ctx context.Context) (found []Finding, err error) {
	if !e.mayLook() {
		return nil, nil
	}
	tenants, err := e.store.Tenants().Paused(ctx)
	if err != nil {
		return nil, err
	}
	for n := range tenants {
		if p := &tenants[n]; p.Age > ops.LongPause {
			found = append(found, finding("pauses", Warning, "if that was forgotten: oncebox tenants resume "+p.Tenant,
				"the tenant %s is paused since %s, so its events wait; %s did so: %s", p.Tenant, p.Since.UTC().Format(time.RFC3339), p.Actor, p.Reason))
		}
	}
	consumers, err := e.inbox.Consumers().Paused(ctx)
	for n := range consumers {
		if p := &consumers[n]; p.Age > ops.LongPause {
			until := ""
			if !p.Until.IsZero() {
				until = " until " + p.Until.UTC().Format(time.RFC3339)
			}
			found = append(found, finding("pauses", Warning, "if that was forgotten: oncebox consumers resume "+p.Consumer,
				"the consumer %s is paused since %s%s, so its messages wait; %s did so: %s",
				p.Consumer, p.Since.UTC().Format(time.RFC3339), until, p.Actor, p.Reason))
		}
	}
	return found, err
}
