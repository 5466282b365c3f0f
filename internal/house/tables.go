package main

import (
	"fmt"
	"io/fs"
	"regexp"
)

// tables counts what the migrations create, without the default partition of each table.
type tables struct{ tables, views, functions int }

var (
	createTable    = regexp.MustCompile(`(?m)^CREATE (?:UNLOGGED )?TABLE \w+`)
	createChild    = regexp.MustCompile(`(?m)^CREATE (?:UNLOGGED )?TABLE \w+ PARTITION OF`)
	createView     = regexp.MustCompile(`(?m)^CREATE (?:OR REPLACE )?VIEW`)
	createFunction = regexp.MustCompile(`(?m)^CREATE (?:OR REPLACE )?FUNCTION`)
)

func countTables(fsys fs.FS) (tables, error) {
	files, err := fs.Glob(fsys, "migrations/sql/*.sql")
	if err != nil {
		return tables{}, err
	}
	var n tables
	for _, name := range files {
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return tables{}, fmt.Errorf("count the tables: %w", err)
		}
		count := func(of *regexp.Regexp) int { return len(of.FindAllIndex(text, -1)) }
		n.tables += count(createTable) - count(createChild)
		n.views += count(createView)
		n.functions += count(createFunction)
	}
	return n, nil
}
