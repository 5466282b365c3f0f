package oncebox_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// figure is one Mermaid block of a page.
type figure struct {
	page, text string
}

// figures are the Mermaid blocks of all pages.
func figures(t *testing.T) []figure {
	t.Helper()
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	more, err := filepath.Glob("docs/adr/*.md")
	require.NoError(t, err)
	var all []figure
	for _, page := range append(append(pages, more...), "README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, block := range regexp.MustCompile("(?s)```mermaid\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			all = append(all, figure{page, block[1]})
		}
	}
	return all
}

// Each figure begins with a type that GitHub draws. A semicolon would end a line of Mermaid within a text.
func TestFiguresAreMermaid(t *testing.T) {
	all := figures(t)
	require.NotEmpty(t, all)
	for _, f := range all {
		require.Regexp(t, `^(flowchart (LR|TB)|sequenceDiagram|stateDiagram-v2)\n`, f.text, f.page)
		require.NotContains(t, f.text, ";", f.page)
		opened := regexp.MustCompile(`(?m)^\s*(subgraph|loop) `).FindAllString(f.text, -1)
		require.Len(t, regexp.MustCompile(`(?m)^\s*end$`).FindAllString(f.text, -1), len(opened), "%s: each subgraph and loop has an end", f.page)
	}
}

// A figure of states names the column whose states it shows, and shows all of them and no others.
func TestFiguresOfStatesAreThoseOfTheTables(t *testing.T) {
	columns := statesOfTables(t)
	drawn := map[string]bool{}
	for _, f := range figures(t) {
		if !strings.HasPrefix(f.text, "stateDiagram") {
			continue
		}
		named := regexp.MustCompile(`%% states of (\w+\.\w+)\n`).FindStringSubmatch(f.text)
		require.NotNil(t, named, "%s: a figure of states names none of a table:\n%s", f.page, f.text)
		require.Contains(t, columns, named[1])
		drawn[named[1]] = true
		require.Equal(t, columns[named[1]], statesOfFigure(f.text), "%s: states of %s", f.page, named[1])
	}
	for _, column := range []string{"outbox_messages.status", "outbox_block.state", "inbox_key.state", "idempotency_keys.state"} {
		require.True(t, drawn[column], "no figure shows the states of %s", column)
	}
}

// statesOfFigure are the names at both ends of all arrows.
func statesOfFigure(text string) []string {
	var states []string
	for _, arrow := range regexp.MustCompile(`(?m)^\s*(\S+) --> ([^:\s]+)`).FindAllStringSubmatch(text, -1) {
		for _, state := range arrow[1:] {
			if state != "[*]" {
				states = append(states, state)
			}
		}
	}
	slices.Sort(states)
	return slices.Compact(states)
}

// statesOfTables are the states that the migrations allow: those of each CHECK (column IN (...)), and those that the view of messages makes.
func statesOfTables(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("migrations/sql/*.sql")
	require.NoError(t, err)
	states := map[string][]string{}
	literals := func(sql string) (found []string) {
		for _, literal := range regexp.MustCompile(`'([A-Za-z]+)'`).FindAllStringSubmatch(sql, -1) {
			found = append(found, literal[1])
		}
		slices.Sort(found)
		return slices.Compact(found)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, table := range regexp.MustCompile(`(?s)CREATE (?:UNLOGGED )?TABLE (\w+) \(.*?\n\)`).FindAllStringSubmatch(string(text), -1) {
			for _, check := range regexp.MustCompile(`CHECK \((\w+) IN \(([^)]*)\)\)`).FindAllStringSubmatch(table[0], -1) {
				states[table[1]+"."+check[1]] = literals(check[2])
			}
		}
		for _, view := range regexp.MustCompile(`(?s)CREATE VIEW (outbox_messages) AS.*?;`).FindAllStringSubmatch(string(text), -1) {
			for _, literal := range literals(view[0]) {
				if literal == strings.ToUpper(literal) {
					states["outbox_messages.status"] = append(states["outbox_messages.status"], literal)
				}
			}
		}
	}
	return states
}
