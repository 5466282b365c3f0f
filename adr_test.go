package oncebox_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// decisions are the pages of docs/adr, by number.
func decisions(t *testing.T) map[string]string {
	t.Helper()
	pages, err := filepath.Glob("docs/adr/0*.md")
	require.NoError(t, err)
	byNumber := map[string]string{}
	for _, page := range pages {
		number := filepath.Base(page)[:4]
		require.NotContains(t, byNumber, number, "two decisions have one number")
		byNumber[number] = page
	}
	require.NotEmpty(t, byNumber)
	return byNumber
}

// The list of decisions has each page, with its title, and nothing else.
func TestDocumentationListsEachDecision(t *testing.T) {
	list, err := os.ReadFile("docs/adr/README.md")
	require.NoError(t, err)
	pages := decisions(t)
	listed := regexp.MustCompile(`(?m)^- \[(\d{4})\]\(([^)]+)\) (.+)$`).FindAllStringSubmatch(string(list), -1)
	require.Len(t, listed, len(pages))
	for _, line := range listed {
		page := pages[line[1]]
		require.Equal(t, filepath.Base(page), line[2])
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		title, _, _ := strings.Cut(string(text), "\n")
		require.Equal(t, "# "+line[1]+" "+line[3], title)
	}
}

// Each decision says what was needed and what was decided, and after that what follows, what was measured and what was rejected, as far as
// there is any of it: under these headings, in this order.
func TestDocumentationOfDecisionsHasOneForm(t *testing.T) {
	form := regexp.MustCompile(`^Context Decision( What can go wrong)?( Consequences)?( Measured)?( Rejected)?$`)
	for _, page := range decisions(t) {
		var headings []string
		for _, heading := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(readPage(t, page), -1) {
			headings = append(headings, heading[1])
		}
		require.Regexp(t, form, strings.Join(headings, " "), page)
	}
}

// A decision that a page or a comment names by its number exists.
func TestDocumentationNamesDecisionsThatExist(t *testing.T) {
	pages := decisions(t)
	number := regexp.MustCompile(`^(?:ADRs? |adr/)(\d{4})`)
	named := 0
	for _, file := range proseFiles(t) {
		text := readPage(t, file)
		for _, start := range []string{"ADR", "adr/"} {
			for i, rest := range strings.Split(text, start) {
				if name := number.FindStringSubmatch(start + rest); i > 0 && name != nil {
					named++
					require.Contains(t, pages, name[1], "%s: %s", file, name[0])
				}
			}
		}
	}
	require.Greater(t, named, 5)
}

// proseFiles are the pages and sources of this module and of the modules within it, sorted.
func proseFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	require.NoError(t, filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || d.Name() == "node_modules" || d.Name() == "testdata"):
			return filepath.SkipDir
		}
		switch filepath.Ext(path) {
		case ".md", ".go", ".sql":
			files = append(files, path)
		}
		return nil
	}))
	return files
}
