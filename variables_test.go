package oncebox_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each variable that a page names is a setting, which docs/config.md lists.
func TestVariablesOfPagesExist(t *testing.T) {
	known := map[string]bool{"ONCEBOX_IGNORE": true}
	for _, row := range regexp.MustCompile("(?m)^\\| `(ONCEBOX_\\w+)`").FindAllStringSubmatch(readPage(t, "docs/config.md"), -1) {
		known[row[1]] = true
	}
	unknown := func(page string) (names []string) {
		for _, name := range regexp.MustCompile(`\bONCEBOX_[A-Z_]*[A-Z]\b`).FindAllString(page, -1) {
			if !known[name] {
				names = append(names, name)
			}
		}
		return names
	}
	for _, page := range prosePages(t) {
		if !strings.HasPrefix(page, "docs/adr/") {
			require.Empty(t, unknown(readPage(t, page)), page)
		}
	}
	require.Equal(t, []string{"ONCEBOX_SCHEM"}, unknown("set `ONCEBOX_SCHEM`, `ONCEBOX_SCHEMA` and `ONCEBOX_NATS_…`"))
}
