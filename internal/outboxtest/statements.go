package outboxtest

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/outbox"
)

// Statements compares statements with testdata/statements.sql. The column lists of the statements are generated from
// one list of columns, and the file has what the server gets. So a change of that list shows which statements it
// changes. WRITE_STATEMENTS=1 accepts the change.
func Statements(t *testing.T, statements map[string]string) {
	t.Helper()
	run := outbox.NewStore(nil, &outbox.Config{Schema: "s"}).Handle().Run
	const file = "testdata/statements.sql"
	if os.Getenv("WRITE_STATEMENTS") != "" {
		var all strings.Builder
		for _, name := range slices.Sorted(maps.Keys(statements)) {
			fmt.Fprintf(&all, "-- %s\n%s\n\n", name, inOneLine(run.Text(statements[name])))
		}
		require.NoError(t, os.WriteFile(file, []byte(all.String()), 0o600))
	}
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	left := maps.Clone(statements)
	for part := range strings.SplitSeq(strings.TrimSpace(string(written)), "\n\n") {
		name, want, _ := strings.Cut(strings.TrimPrefix(part, "-- "), "\n")
		require.Equal(t, want, inOneLine(run.Text(statements[name])), name)
		delete(left, name)
	}
	require.Empty(t, left, "they are not in the file")
}

func inOneLine(statement string) string { return strings.Join(strings.Fields(statement), " ") }
