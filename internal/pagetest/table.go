package pagetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Cell returns a cell of a table: that of the first row with this name, in the column with this name.
func Cell(t testing.TB, page, row, column string) string {
	t.Helper()
	var head []string
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.TrimSuffix(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case len(cells) < 3:
			head = nil
		case head == nil:
			head = cells
		case cells[1] == row:
			at := slices.Index(head, column)
			require.True(t, at >= 0 && at < len(cells), "the table of %q has no column %q", row, column)
			return cells[at]
		}
	}
	require.FailNow(t, "the page has no such row", row)
	return ""
}
