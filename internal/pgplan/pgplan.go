// Package pgplan looks at the plans of prepared statements.
package pgplan

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// Plan is a query plan, as EXPLAIN prints it in JSON.
type Plan struct {
	Text string
	root node
}

type node struct {
	Type     string `json:"Node Type"`     //nolint:tagliatelle // PostgreSQL's name
	Relation string `json:"Relation Name"` //nolint:tagliatelle // PostgreSQL's name
	Plans    []node `json:"Plans"`         //nolint:tagliatelle // PostgreSQL's name
}

// Generic returns the plan that a prepared statement gets in the end, independent of its arguments.
func Generic(ctx context.Context, db *sql.DB, statement string) (p Plan, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return p, fmt.Errorf("pgplan: %w", err)
	}
	defer conn.Close()
	defer func() {
		for _, s := range []string{"DEALLOCATE pgplan", "RESET plan_cache_mode"} {
			_, _ = conn.ExecContext(context.WithoutCancel(ctx), s) // the next user of the connection needs the default
		}
	}()
	for _, s := range []string{"SET plan_cache_mode = force_generic_plan", "PREPARE pgplan AS " + statement} {
		if _, err := conn.ExecContext(ctx, s); err != nil {
			return p, fmt.Errorf("pgplan: prepare: %w", err)
		}
	}
	var n int
	if err := conn.QueryRowContext(ctx,
		"SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'pgplan'").Scan(&n); err != nil {
		return p, fmt.Errorf("pgplan: %w", err)
	}
	execute := "EXECUTE pgplan"
	if n > 0 {
		execute += " (" + strings.Join(slices.Repeat([]string{"NULL"}, n), ", ") + ")"
	}
	if p.Text, err = explain(ctx, conn, "EXPLAIN "+execute); err != nil {
		return p, err
	}
	text, err := explain(ctx, conn, "EXPLAIN (FORMAT JSON) "+execute)
	if err != nil {
		return p, err
	}
	var plans []struct {
		Plan node `json:"Plan"` //nolint:tagliatelle // PostgreSQL's name
	}
	if err := json.Unmarshal([]byte(text), &plans); err != nil || len(plans) != 1 {
		return p, fmt.Errorf("pgplan: this is not a plan (%w): %s", err, text)
	}
	p.root = plans[0].Plan
	return p, nil
}

func explain(ctx context.Context, conn *sql.Conn, statement string) (string, error) {
	rows := pgsql.QueryPlain(ctx, conn, statement)
	lines, err := pgsql.Collect(rows, func(scan pgsql.Scan, line *string) error { return scan(line) })
	if err != nil {
		return "", fmt.Errorf("pgplan: explain: %w", err)
	}
	return strings.Join(lines, "\n"), nil
}

// Unbounded returns the nodes of the plan whose time grows with the tables: sequential scans, and sorts of rows that
// are read without a limit.
func (p Plan) Unbounded(tables *regexp.Regexp) (found []string) {
	walk(p.root, func(n node) bool {
		switch {
		case n.Type == "Seq Scan" && tables.MatchString(n.Relation):
			found = append(found, "it scans all of "+n.Relation)
		case strings.HasSuffix(n.Type, "Sort"):
			walk(n, func(below node) bool {
				if tables.MatchString(below.Relation) {
					found = append(found, "it sorts what it reads of "+below.Relation)
				}
				return below.Type != "Limit"
			})
		}
		return true
	})
	return found
}

// walk calls fn for the node, and for the nodes below it as long as fn returns true.
func walk(n node, fn func(node) bool) {
	if !fn(n) {
		return
	}
	for _, below := range n.Plans {
		walk(below, fn)
	}
}
