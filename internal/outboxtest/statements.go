package outboxtest

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/outbox"
)

var update = flag.Bool("update", false, "write testdata/statements.sql anew")

// Statements compares statements with those in testdata/statements.sql. The column lists of statements are made of one table of columns. What the
// server gets is in the file, so a change of the table shows what else it changes. Run the test with -update to accept it.
func Statements(t *testing.T, statements map[string]string) {
	t.Helper()
	run := outbox.NewStore(nil, &outbox.Config{Schema: "s"}).Handle().Run
	const file = "testdata/statements.sql"
	if *update {
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
