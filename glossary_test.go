package oncebox_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The code uses each word of the glossary: in a name, a comment or a statement of SQL.
func TestWordsOfTheGlossaryOccurInTheCode(t *testing.T) {
	var code strings.Builder
	for _, file := range proseFiles(t) {
		if filepath.Ext(file) == ".md" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		code.WriteString(strings.ToLower(string(text)))
	}
	words := glossary(t)
	require.Greater(t, len(words), 30)
	for _, word := range words {
		require.True(t, occurs(code.String(), word), "the glossary explains %q, which no code uses", word)
	}
	require.False(t, occurs(code.String(), "Perpetual Motion"))
}

// glossary are the words that docs/glossary.md explains, in its order.
func glossary(t *testing.T) (words []string) {
	t.Helper()
	for _, entry := range regexp.MustCompile(`(?m)^\*\*([^*]+)\.\*\*`).FindAllStringSubmatch(readPage(t, "docs/glossary.md"), -1) {
		words = append(words, strings.Split(entry[1], ", ")...)
	}
	return words
}

// occurs reports whether code has the words of a term next to each other, in the spelling of prose, of Go or of SQL.
func occurs(code, term string) bool {
	parts := strings.Fields(strings.ToLower(term))
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile(strings.Join(parts, `[\s_/]*`)).MatchString(code)
}

// The glossary is in the order of the alphabet, and explains each word once.
func TestGlossaryIsSorted(t *testing.T) {
	var last string
	for _, word := range regexp.MustCompile(`(?m)^\*\*([^*]+)\.\*\*`).FindAllStringSubmatch(readPage(t, "docs/glossary.md"), -1) {
		require.Less(t, last, strings.ToLower(word[1]))
		last = strings.ToLower(word[1])
	}
}

// The first page of the console and oncebox status name a number by the same words, which the glossary explains.
func TestNumbersHaveTheWordsOfTheGlossary(t *testing.T) {
	explained := strings.ToLower(strings.ReplaceAll(readPage(t, "docs/glossary.md"), "\n", " "))
	for _, place := range []string{"console/templates/overview.html", "cmd/oncebox/internal/status/print.go"} {
		shown := strings.ToLower(readPage(t, place))
		for _, words := range []string{
			"events waiting", "held", "blocked keys", "dead events", "dead messages", "unknown steps", "parked", "failing keys",
		} {
			require.Contains(t, shown, words, place)
			one := regexp.QuoteMeta(strings.TrimSuffix(words, "s"))
			require.Regexp(t, `\*`+one+`s?[.*]`, explained, "the glossary explains it")
		}
	}
}

// readPage is the text of a page.
func readPage(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	return string(text)
}
