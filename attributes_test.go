package oncebox_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/operator"
)

// attribute is a thing that metrics, lines of the log and entries of the audit name.
type attribute struct {
	name   string // as an attribute of a metric and a field of a line; empty if neither has it
	column string // of the audit, whose name in Go is that of the column or of the attribute; empty if the audit does not have it
}

// attributes has each thing once, so that a name that is known from one place is found in the others.
func attributes() []attribute {
	return []attribute{
		{"topic", "topic"},
		{"tenant", "tenant_id"},
		{"consumer", "consumer"},
		{"id", "event_id"},
		{"type", "event_type"},
		{"", "id"}, // of the entry
		{"", "at"},
		{"", "part"},
		{"", "actor"},
		{"", "action"},
		{"", "reason"},
		{"", "events"},
		{"", "source"},
		{"", "message_id"},
		{"", "key_hash"},
		{"", "step"},
		{"", "epoch"},
		{"", "fingerprint"},
		{"outcome", ""},
		{"state", ""},
		{"kind", ""},
		{"aggregate_type", ""},
		{"aggregate_id", ""},
		{"ordering_key", ""},
		{"encryption_key", ""},
		{"message_key", ""},
		{"lane", ""},
		{"sequence", ""},
		{"attempts", ""},
		{"try", ""},
		{"took", ""},
		{"wait", ""},
		{"pause", ""},
		{"limit", ""},
		{"version", ""},
		{"keys", ""},
		{"error", ""},
	}
}

// A thing has one name in metrics and in the log, and the audit's column is that name or says more.
func TestAttributesHaveTheSameNameEverywhere(t *testing.T) {
	var names, columns []string
	for _, a := range attributes() {
		if a.name != "" {
			names = append(names, a.name)
		}
		if a.column != "" {
			columns = append(columns, a.column)
		}
	}
	require.ElementsMatch(t, names, slices.Compact(slices.Sorted(slices.Values(append(attributesOfMetrics(t), fieldsOfLines(t)...)))),
		"use the name in attributes, or add the thing to it")

	tables, err := os.ReadFile("migrations/tables.txt")
	require.NoError(t, err)
	require.ElementsMatch(t, columns, submatches(regexp.MustCompile(`(?m)^column oncebox_audit\.(\w+):`), string(tables)))

	for f := range reflect.TypeFor[operator.AuditEntry]().Fields() {
		snake := strings.ToLower(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(f.Name, "${1}_$2"))
		require.True(t, slices.ContainsFunc(attributes(), func(a attribute) bool {
			return strings.TrimSuffix(a.column, "_hash") == snake || a.column != "" && a.name == snake
		}), "operator.AuditEntry.%s is neither a column nor an attribute", f.Name)
	}
}

// attributesOfMetrics returns the attributes in the source whose name has no dot: the others are of spans.
func attributesOfMetrics(t *testing.T) (names []string) {
	t.Helper()
	call := regexp.MustCompile(`attribute\.\w+\("([a-z_]+)"`)
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		names = append(names, submatches(call, string(text))...)
		return err
	}))
	return names
}

// fieldsOfLines returns the fields that docs/logs.md explains, which are those of the source: TestLogLinesAreThoseOfTheSource.
func fieldsOfLines(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("docs/logs.md")
	require.NoError(t, err)
	return submatches(regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|"), string(page))
}

func submatches(pattern *regexp.Regexp, text string) (found []string) {
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}
