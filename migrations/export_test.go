package migrations

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/uptrace/bun"
)

const listNames = `
SELECT c.relname::text, false FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'S') AND NOT (c.relispartition AND c.relname ~ '_[0-9]{8}$') AND NOT EXISTS (
	SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'i' AND c.relkind = 'S')
UNION ALL SELECT DISTINCT p.proname::text, true FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = $1`

// Tables returns the text that tables.txt must have for a schema with the tables of Up and nothing else.
func Tables(ctx context.Context, db *bun.DB, schema string) (string, error) {
	s, err := look(ctx, db.DB, &Config{Schema: schema})
	if err != nil {
		return "", err
	}
	rows, err := db.DB.QueryContext(ctx, listNames, schema)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var relations, functions []string
	for rows.Next() {
		var name string
		var isFunction bool
		if err := rows.Scan(&name, &isFunction); err != nil {
			return "", err
		}
		if isFunction {
			functions = append(functions, name)
		} else {
			relations = append(relations, name)
		}
	}
	p, facts, err := read(ctx, db, s.schema, relations, functions)
	if err != nil {
		return "", err
	}
	var lines []string
	for _, f := range facts {
		if f.kind == "body" {
			continue // they are in the files, as they are
		}
		f.definition = strings.ReplaceAll(f.definition, p.ident+".", "{schema}.")
		lines = append(lines, f.String()+"\n")
	}
	slices.Sort(lines)
	if len(relations) < 20 || len(functions) < 10 {
		return "", fmt.Errorf("only %d relations and %d functions", len(relations), len(functions))
	}
	return strings.Join(lines, ""), rows.Err()
}
