package migrations

import (
	"context"
	"database/sql"
	_ "embed"
	"strings"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// tables is what a database has after [Up]: one fact a line, "kind name: definition", sorted. {schema} stands for the schema.
//
//go:embed tables.txt
var tables string

// Kinds of facts. From triggerFact on they are about objects that should not exist.
const (
	tableFact       = "table"
	viewFact        = "view"
	sequenceFact    = "sequence"
	functionFact    = "function"
	bodyFact        = "body"
	columnFact      = "column"
	constraintFact  = "constraint"
	indexFact       = "index"
	optionFact      = "option"
	partitionedFact = "partitioned"
	partitionFact   = "partition"
	readsFact       = "reads"
	triggerFact     = "trigger"
	ruleFact        = "rule"
	securityFact    = "security"
	publicFact      = "public"
	ownerFact       = "owner"
	rightFact       = "right"
	otherFact       = "other"
)

// fact is one statement about the tables.
type fact struct {
	kind string
	// name is the name of a relation, of a part of one ("outbox.lane"), or of a function with the types of
	// its arguments.
	name       string
	definition string
}

func (f fact) String() string { return f.kind + " " + f.name + ": " + f.definition }

// relation returns the table, view or sequence that the fact is about.
func (f fact) relation() string {
	relation, _, _ := strings.Cut(f.name, ".")
	return relation
}

// part returns the part of the relation: a column, an index or a constraint.
func (f fact) part() string {
	_, part, _ := strings.Cut(f.name, ".")
	return part
}

// function returns the name of a function without its arguments.
func function(name string) string {
	name, _, _ = strings.Cut(name, "(")
	return name
}

// place is a schema, in the two ways in which its name is written.
type place struct {
	schema string // plain
	ident  string // quoted as by PostgreSQL's quote_ident
}

// fill replaces {schema} as oncebox_create does.
func (p place) fill(text string) string {
	// A quoted schema may contain an apostrophe, which has to be doubled within a literal.
	literal := "'" + strings.ReplaceAll(p.ident, "'", "''")
	return strings.NewReplacer("'{schema}.", literal+".", "{schema}.", p.ident+".").Replace(text)
}

// parse reads the lines of tables.txt.
func parse(text string) (list []fact) {
	for line := range strings.Lines(text) {
		subject, definition, _ := strings.Cut(strings.TrimSpace(line), ": ")
		kind, name, _ := strings.Cut(subject, " ")
		list = append(list, fact{kind, name, definition})
	}
	return list
}

// of returns the facts as they are of a schema, with the bodies of its functions.
func (p place) of(facts []fact, made map[string]source) (list []fact) {
	for _, f := range facts {
		list = append(list, fact{f.kind, f.name, p.fill(f.definition)})
		if f.kind == functionFact {
			list = append(list, fact{bodyFact, f.name, made[function(f.name)].bodyIn(p)})
		}
	}
	return list
}

// settle fixes the settings on which the texts of definitions depend, until the end of the transaction. It returns the
// quoted name of the schema, which depends on them, too.
const settle = `
WITH s AS MATERIALIZED (
	SELECT $1::text AS schema, set_config('search_path', 'pg_catalog', true), set_config('IntervalStyle', 'postgres', true),
		set_config('quote_all_identifiers', 'off', true), set_config('standard_conforming_strings', 'on', true),
		set_config('jit', 'off', true) -- compiling the query would take longer than it does
)
SELECT quote_ident(schema) FROM s`

// listFacts says of the relations $2 and the functions $3 of the schema $1 what there is. It asks pg_catalog only, which every role
// may read. What is made for each day is left out, as is what a child has from its parent.
const listFacts = `
WITH schema AS MATERIALIZED (
	SELECT oid FROM pg_namespace WHERE nspname = $1
), rel AS MATERIALIZED (
	SELECT c.oid, c.relname::text AS name, c.relkind AS kind, c.relowner, c.relpersistence, c.relispartition, c.relpartbound,
		c.relrowsecurity, c.reloptions, c.relacl
	FROM pg_class c JOIN schema s ON c.relnamespace = s.oid
	WHERE c.relname = ANY ($2::text[]) AND c.relkind IN ('r', 'p', 'v', 'S')
), fn AS MATERIALIZED (
	SELECT p.*, p.proname || '(' || oidvectortypes(p.proargtypes) || ')' AS name
	FROM pg_proc p JOIN schema s ON p.pronamespace = s.oid WHERE p.proname = ANY ($3::text[])
), facts (kind, name, definition) AS (
	SELECT 'table', r.name, CASE r.relpersistence WHEN 'u' THEN 'unlogged' ELSE 'permanent' END FROM rel r WHERE r.kind IN ('r', 'p')
UNION ALL
	SELECT 'partitioned', r.name, pg_get_partkeydef(r.oid) FROM rel r WHERE r.kind = 'p'
UNION ALL
	SELECT 'partition', p.relname || '.' || r.name, pg_get_expr(r.relpartbound, r.oid)
	FROM rel r JOIN pg_inherits i ON i.inhrelid = r.oid JOIN pg_class p ON p.oid = i.inhparent WHERE r.relispartition
UNION ALL
	SELECT 'option', r.name || '.' || o.option_name, o.option_value FROM rel r CROSS JOIN LATERAL pg_options_to_table(r.reloptions) o
UNION ALL
	SELECT 'column', r.name || '.' || quote_ident(a.attname), concat_ws(' ', format_type(a.atttypid, a.atttypmod),
		CASE WHEN a.attcollation <> t.typcollation THEN 'COLLATE ' || quote_ident(c.collname) END,
		CASE WHEN a.attnotnull THEN 'NOT NULL' END,
		CASE WHEN a.attidentity = 'a' THEN 'GENERATED ALWAYS AS IDENTITY'
			WHEN a.attidentity = 'd' THEN 'GENERATED BY DEFAULT AS IDENTITY'
			WHEN a.attgenerated = '' THEN 'DEFAULT ' || pg_get_expr(d.adbin, d.adrelid)
			ELSE 'GENERATED ALWAYS AS (' || pg_get_expr(d.adbin, d.adrelid) || ')' || CASE a.attgenerated WHEN 's' THEN ' STORED' ELSE '' END END)
	FROM rel r JOIN pg_attribute a ON a.attrelid = r.oid JOIN pg_type t ON t.oid = a.atttypid
	LEFT JOIN pg_attrdef d ON d.adrelid = r.oid AND d.adnum = a.attnum LEFT JOIN pg_collation c ON c.oid = a.attcollation
	WHERE r.kind IN ('r', 'p') AND NOT r.relispartition AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
	SELECT 'constraint', r.name || '.' || quote_ident(c.conname), pg_get_constraintdef(c.oid)
	FROM rel r JOIN pg_constraint c ON c.conrelid = r.oid WHERE c.contype IN ('p', 'u', 'f', 'c', 'x') AND c.conislocal
UNION ALL
	SELECT 'index', r.name || '.' || quote_ident(c.relname), pg_get_indexdef(c.oid) || CASE WHEN i.indisvalid THEN '' ELSE ' INVALID' END
	FROM rel r JOIN pg_index i ON i.indrelid = r.oid JOIN pg_class c ON c.oid = i.indexrelid
	WHERE NOT c.relispartition AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = c.oid AND k.contype IN ('p', 'u', 'x'))
UNION ALL
	SELECT 'sequence', r.name, format('AS %s INCREMENT BY %s MINVALUE %s MAXVALUE %s CACHE %s %s', format_type(s.seqtypid, NULL),
		s.seqincrement, s.seqmin, s.seqmax, s.seqcache, CASE WHEN s.seqcycle THEN 'CYCLE' ELSE 'NO CYCLE' END)
	FROM rel r JOIN pg_sequence s ON s.seqrelid = r.oid
UNION ALL
	SELECT 'view', r.name, (SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum)
		FROM pg_attribute a WHERE a.attrelid = r.oid AND a.attnum > 0) FROM rel r WHERE r.kind = 'v'
UNION ALL
	-- The text of a view differs between releases of PostgreSQL. What it reads does not.
	SELECT 'reads', r.name || '.' || coalesce(o.name, d.refobjid::regclass::text),
		string_agg(DISTINCT quote_ident(a.attname) COLLATE "C", ', ' ORDER BY quote_ident(a.attname) COLLATE "C")
	FROM rel r JOIN pg_rewrite w ON w.ev_class = r.oid JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid
	JOIN pg_attribute a ON d.refclassid = 'pg_class'::regclass AND a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
	LEFT JOIN rel o ON o.oid = d.refobjid
	WHERE r.kind = 'v' AND d.refobjid <> r.oid GROUP BY r.name, o.name, d.refobjid
UNION ALL
	SELECT 'function', f.name, concat_ws(' ', '(' || pg_get_function_arguments(f.oid) || ') RETURNS', pg_get_function_result(f.oid), 'LANGUAGE', l.lanname,
		CASE f.provolatile WHEN 'i' THEN 'IMMUTABLE' WHEN 's' THEN 'STABLE' ELSE 'VOLATILE' END, CASE WHEN f.proisstrict THEN 'STRICT' END,
		CASE WHEN f.proretset THEN 'ROWS ' || f.prorows END, CASE WHEN f.prosecdef THEN 'SECURITY DEFINER' END,
		(SELECT string_agg('SET ' || c, ' ' ORDER BY c) FROM unnest(f.proconfig) c))
	FROM fn f JOIN pg_language l ON l.oid = f.prolang
UNION ALL
	SELECT 'body', f.name, f.prosrc FROM fn f
UNION ALL
	SELECT 'public', f.name, 'EXECUTE' FROM fn f
	WHERE f.prosecdef AND EXISTS (SELECT FROM aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) a WHERE a.grantee = 0)
UNION ALL
	SELECT 'security', r.name, 'on' FROM rel r WHERE r.relrowsecurity
UNION ALL
	SELECT 'trigger', r.name || '.' || quote_ident(t.tgname), '' FROM rel r JOIN pg_trigger t ON t.tgrelid = r.oid WHERE NOT t.tgisinternal AND t.tgparentid = 0
UNION ALL
	SELECT 'rule', r.name || '.' || quote_ident(w.rulename), '' FROM rel r JOIN pg_rewrite w ON w.ev_class = r.oid WHERE w.rulename <> '_RETURN'
UNION ALL
	-- A sequence that a column owns has the owner of its table.
	SELECT 'owner', CASE o.kind WHEN 'f' THEN 'FUNCTION ' WHEN 'v' THEN 'VIEW ' WHEN 'S' THEN 'SEQUENCE ' ELSE 'TABLE ' END || o.name,
		quote_ident(pg_get_userbyid(o.owner)) || chr(1) || quote_ident(pg_get_userbyid(m.owner))
	FROM (SELECT name, kind, relowner AS owner FROM rel UNION ALL SELECT name, 'f', proowner FROM fn) o,
		(SELECT mode() WITHIN GROUP (ORDER BY relowner) AS owner FROM rel) m
	WHERE o.owner <> m.owner
UNION ALL
	-- What an owner has revoked from itself, unless everybody has it.
	SELECT 'right', o.kind || ' ' || o.name, string_agg(n.privilege, ', ' ORDER BY n.privilege) || chr(1) || quote_ident(pg_get_userbyid(o.owner))
	FROM (
		SELECT CASE kind WHEN 'v' THEN 'VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END AS kind, name, relowner AS owner,
			coalesce(relacl, acldefault(CASE kind WHEN 'S' THEN 's'::"char" ELSE 'r' END, relowner)) AS acl FROM rel
		UNION ALL SELECT 'FUNCTION', name, proowner, coalesce(proacl, acldefault('f', proowner)) FROM fn
	) o JOIN (VALUES ('TABLE', 'SELECT'), ('TABLE', 'INSERT'), ('TABLE', 'UPDATE'), ('TABLE', 'DELETE'), ('VIEW', 'SELECT'),
		('SEQUENCE', 'SELECT'), ('SEQUENCE', 'UPDATE'), ('SEQUENCE', 'USAGE'), ('FUNCTION', 'EXECUTE')) n (kind, privilege) ON n.kind = o.kind
	WHERE NOT EXISTS (SELECT FROM aclexplode(o.acl) a WHERE a.grantee IN (0, o.owner) AND a.privilege_type = n.privilege)
	GROUP BY o.kind, o.name, o.owner
UNION ALL
	SELECT 'other', c.relname::text, ` + relationKind + `
	FROM pg_class c JOIN schema s ON c.relnamespace = s.oid WHERE c.relname = ANY ($2::text[]) AND c.relkind NOT IN ('r', 'p', 'v', 'S')
)
SELECT kind, name, CASE kind WHEN 'body' THEN definition ELSE regexp_replace(definition, '\s+', ' ', 'g') END FROM facts`

// read returns what there is of the relations and functions of these names.
func read(ctx context.Context, db *bun.DB, schema string, relations, functions []string) (p place, list []fact, err error) {
	// The transaction writes nothing, so that a standby can be checked, too.
	tx, err := db.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted, ReadOnly: true})
	if err != nil {
		// One transaction, so that the settings that were fixed hold for the query behind them, and end with it.
		return p, nil, wrap("begin", err)
	}
	defer tx.Rollback() //nolint:errcheck // there is nothing to keep
	p.schema = schema
	if err := tx.QueryRowContext(ctx, settle, schema).Scan(&p.ident); err != nil {
		return p, nil, wrap("set the search_path", err)
	}
	rows := pgsql.QueryPlain(ctx, tx, listFacts, schema, relations, functions)
	list, err = pgsql.Collect(rows, func(scan pgsql.Scan, f *fact) error { return scan(&f.kind, &f.name, &f.definition) })
	return p, list, wrap("read the catalog", err)
}
