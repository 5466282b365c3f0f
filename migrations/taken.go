package migrations

import (
	"context"
	"fmt"
	"strings"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// relationKind is an SQL expression for the kind of the relation c of pg_class.
const relationKind = `CASE c.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'S' THEN 'sequence' WHEN 'i' THEN 'index'
	WHEN 'I' THEN 'index' WHEN 'f' THEN 'foreign table' WHEN 'c' THEN 'type' ELSE 'table' END`

// listTaken says which of the names $2 other relations and types of the schema have, and which of the names $3 its functions. Each table
// has a type of its name.
const listTaken = `
SELECT ` + relationKind + ` AS kind, c.relname::text AS name, quote_ident($1) || '.' || c.relname
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = ANY ($2::text[])
UNION ALL SELECT 'function', p.proname::text, quote_ident($1) || '.' || p.proname || '(' || oidvectortypes(p.proargtypes) || ')'
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = $1 AND p.proname = ANY ($3::text[])
UNION ALL SELECT 'type', t.typname::text, quote_ident($1) || '.' || t.typname
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE n.nspname = $1 AND t.typname = ANY ($2::text[]) AND t.typrelid = 0
ORDER BY kind DESC, name`

// free returns an error if another object has a name that the missing files need. It is checked before
// anything is made.
func free(ctx context.Context, db querier, s *state) error {
	var relations, functions []string
	for _, file := range s.missing {
		for _, m := range makes(file) {
			if m.kind == functionFact {
				functions = append(functions, m.name)
			} else {
				relations = append(relations, m.name)
			}
		}
	}
	var taken []string
	var rename string
	rows := pgsql.QueryPlain(ctx, db, listTaken, s.schema, relations, functions)
	err := pgsql.Each(rows, func(scan pgsql.Scan) error {
		var kind, name, whole string
		// The error shows a complete statement for the first name only. The others need the same.
		if err := scan(&kind, &name, &whole); err != nil {
			return err
		}
		if taken = append(taken, kind+" "+name); len(taken) == 1 {
			rename = strings.ToUpper(strings.Replace(kind, functionFact, "routine", 1)) + " " + whole
		}
		return nil
	})
	if err != nil || len(taken) == 0 {
		return wrap("look for names that are taken", err)
	}
	return fmt.Errorf("migrations: schema %q already has objects with names that oncebox needs, which migrations.Up did not make: %s. Nothing was changed. "+
		"Give oncebox a schema of its own (Config.Schema, ONCEBOX_SCHEMA), or rename these objects: ALTER %s RENAME TO another_name",
		s.schema, few(taken), rename)
}

// shownNames is how many names an error lists.
const shownNames = 5

// few lists names, the first ones if there are many.
func few(names []string) string {
	if more := len(names) - shownNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shownNames], ", "), more)
	}
	return strings.Join(names, ", ")
}
