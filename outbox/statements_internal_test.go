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
)

var update = flag.Bool("update", false, "write testdata/statements.sql anew")

// Statements that name the columns of rows are made of one table of columns. What the server gets is this, so a change of the table shows what
// else it changes. Run the test with -update to accept it.
func TestStatementsOfRows(t *testing.T) {
	statements := map[string]string{
		"dead: list": listDead, "dead: show": showDead, "dead: replay": replayDead, "dead: of the log": readFresh, "dead: of held rows": readHeld,
		"delayed: list": listDelayed, "failing": failingRows, "fetch and take": fetchAndTake, "fetch: few": fetchFew, "fetch: many": fetchMany,
		"fetch: picked": pickRows, "fetch: some": fetchSome, "held: due": dueRows, "held: give up": giveUpHeld, "held: picked": pickDue,
		"held: queue": queueRows, "held: settle": settleHeld, "hold": holdRows, "delay": delayRows, "locate: sent": locateSent,
		"locate: unsent": locateUnsent, "sent: read": readSent, "settle": settleRows,
	}
	for how, insert := range inserts {
		for _, n := range []int{0, 1, 2} {
			statements[fmt.Sprintf("insert: new tenants %t, alike %t, %d rows", how[0], how[1], n)] = insert.texts[n]
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
