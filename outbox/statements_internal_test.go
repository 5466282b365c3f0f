package outbox

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

var update = flag.Bool("update", false, "write testdata/statements.sql anew")

// Statements that name the columns of rows are made of one table of columns. What the server gets is this, so a change of the table shows what
// else it changes. Run the test with -update to accept it.
func TestStatementsOfRows(t *testing.T) {
	statements := map[string]string{
		"list dead letters": listDead, "show a dead letter": showDead, "replay": replayDead, "list delayed events": listDelayed,
		"list failing events": outboxdb.FailingRows, "read what was sent": readSent,
	}
	for name, text := range lanedb.Statements(true) {
		statements["relay: "+name] = text
	}
	one := event.Envelope{AggregateType: "order", AggregateID: "1"}
	for name, evs := range map[string][]event.Envelope{"one": {one}, "two of one aggregate": {one, one}, "two": {one, {}}, "many": make([]event.Envelope, 17)} {
		for _, known := range []bool{true, false} {
			text, _, err := outboxdb.Insertion(&outboxdb.Layout{Lanes: 64}, evs, known)
			require.NoError(t, err)
			statements[fmt.Sprintf("insert %s, tenants known %t", name, known)] = text
		}
	}
	store := NewStore(nil, &Config{Schema: "s"})
	const file = "testdata/statements.sql"
	if *update {
		var all strings.Builder
		for _, name := range slices.Sorted(maps.Keys(statements)) {
			fmt.Fprintf(&all, "-- %s\n%s\n\n", name, inOneLine(store.sql.Text(statements[name])))
		}
		require.NoError(t, os.WriteFile(file, []byte(all.String()), 0o600))
	}
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	for part := range strings.SplitSeq(strings.TrimSpace(string(written)), "\n\n") {
		name, want, _ := strings.Cut(strings.TrimPrefix(part, "-- "), "\n")
		require.Equal(t, want, inOneLine(store.sql.Text(statements[name])), name)
		delete(statements, name)
	}
	require.Empty(t, statements, "they are not in the file")
}

func inOneLine(statement string) string { return strings.Join(strings.Fields(statement), " ") }
