package oncebox_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// finder looks for a phrase. Most texts have none of its words, and need no look with the pattern, which is slow under the race detector.
type finder struct {
	phrase
	words []string // each hit has one of them
}

func finders(t *testing.T) (all []finder) {
	t.Helper()
	for _, p := range phrases {
		parsed, err := syntax.Parse(p.pattern.String(), syntax.Perl)
		require.NoError(t, err)
		words := wordsOf(parsed)
		require.NotEmpty(t, words, "no word stands in each match of %s", p.pattern)
		all = append(all, finder{p, words})
	}
	return all
}

// wordsOf are literals of which each match has at least one. Of several such lists it is the one whose shortest literal is longest. Empty: there
// is none.
func wordsOf(pattern *syntax.Regexp) (words []string) {
	switch pattern.Op {
	case syntax.OpLiteral:
		return []string{string(pattern.Rune)}
	case syntax.OpCapture, syntax.OpPlus:
		return wordsOf(pattern.Sub[0])
	case syntax.OpAlternate:
		for _, sub := range pattern.Sub {
			of := wordsOf(sub)
			if len(of) == 0 {
				return nil
			}
			words = append(words, of...)
		}
	case syntax.OpConcat:
		for _, sub := range pattern.Sub {
			if of := wordsOf(sub); shortest(of) > shortest(words) {
				words = of
			}
		}
	default: // others match more than one word
	}
	return words
}

func shortest(words []string) int {
	if len(words) == 0 {
		return 0
	}
	return len(slices.MinFunc(words, func(a, b string) int { return len(a) - len(b) }))
}

// hits are the places of a text, in lower case, in which the phrase stands, with some words around it.
func (f *finder) hits(text string) (found []string) {
	if !slices.ContainsFunc(f.words, func(word string) bool { return strings.Contains(text, word) }) {
		return nil
	}
	for _, at := range f.pattern.FindAllStringIndex(text, -1) {
		if f.except == nil || !f.except.MatchString(text[at[0]:at[1]]) {
			found = append(found, text[max(0, at[0]-40):min(len(text), at[1]+40)])
		}
	}
	return found
}

// Pages are written in the words of a reader: no phrase stands in them.
func TestDocumentationAvoidsPhrases(t *testing.T) {
	pages, finders := prosePages(t), finders(t)
	require.Greater(t, len(pages), 50)
	for _, page := range pages {
		for _, paragraph := range paragraphs(readPage(t, page)) {
			for _, f := range finders {
				for _, hit := range f.hits(paragraph) {
					t.Errorf("%s: %s: …%s…", page, f.kind, hit)
				}
			}
		}
	}
}

// No sentence is broken where its next word begins a list: "17", and "+ 5 µs" in the next line.
func TestNoSentenceBecomesAList(t *testing.T) {
	for _, page := range prosePages(t) {
		for _, line := range strayItems(readPage(t, page)) {
			t.Errorf("%s: this line continues a sentence, and is shown as an item of a list: %s", page, line)
		}
	}
	require.Equal(t, []string{"+ 5 µs"}, strayItems("A sum of 17\n+ 5 µs\n"))
	require.Empty(t, strayItems("Two:\n\n- a\n  b\n- c\n\n```\na\n+ b\n```\n"))
}

var itemOfList = regexp.MustCompile(`^\s*([-*+]|\d+\.) `)

// strayItems are lines that look like the items of a list, and follow a line of plain text.
func strayItems(page string) (found []string) {
	plain := false
	for line := range strings.SplitSeq(blocks.ReplaceAllString(page, "\n"), "\n") {
		item := itemOfList.MatchString(line)
		if item && plain {
			found = append(found, line)
		}
		plain = line != "" && !item && !strings.HasPrefix(line, " ")
	}
	return found
}

// prosePages are all pages. The tables of docs/config.md are made of comments of the code: mend them there.
func prosePages(t *testing.T) []string {
	t.Helper()
	pages := []string{"README.md", "CHANGELOG.md", "SECURITY.md"}
	for _, folder := range []string{"docs", "docs/adr", "docs/migrating", "docs/releases"} {
		more, err := filepath.Glob(folder + "/*.md")
		require.NoError(t, err)
		pages = append(pages, more...)
	}
	return pages
}

// paragraphs removes these parts of a page.
var (
	blocks     = regexp.MustCompile("(?s)```.*?```")
	codeSpans  = regexp.MustCompile("`[^`]*`")
	quotations = regexp.MustCompile(`"[^"\n|]*"`)
	addresses  = regexp.MustCompile(`\]\([^)]*\)`)
	points     = regexp.MustCompile(`(?m)^\s*([-*]|\d+\.) `)
)

// paragraphs are the paragraphs, cells and points of a page, each in one line and in lower case, without code, quotations and addresses of links.
func paragraphs(page string) (all []string) {
	page = blocks.ReplaceAllString(page, "\n")
	page = codeSpans.ReplaceAllString(page, "code")
	page = quotations.ReplaceAllString(page, "quotation")
	page = addresses.ReplaceAllString(page, "]")
	page = points.ReplaceAllString(page, "\n\n")
	page = strings.NewReplacer("|", "\n\n", "*", "").Replace(page)
	for paragraph := range strings.SplitSeq(page, "\n\n") {
		if line := strings.Join(strings.Fields(paragraph), " "); line != "" {
			all = append(all, strings.ToLower(line))
		}
	}
	return all
}

// The comments and texts of the code do not get more of a phrase than they have. Whoever mends some lowers its number.
func TestCodeGetsNoMorePhrases(t *testing.T) {
	texts := proseOfCode(t)
	require.Greater(t, len(texts), 3000)
	for _, f := range finders(t) {
		var hits []string
		for _, text := range texts {
			for _, hit := range f.hits(text.text) {
				hits = append(hits, fmt.Sprintf("%s: %s: …%s…", text.place, f.kind, hit))
			}
		}
		t.Logf("%3d of %3d  %s  %s", len(hits), f.code, f.kind, f.pattern)
		if len(hits) > f.code {
			t.Errorf("%q stands %d times in the code, and %d are allowed:\n%s", f.pattern, len(hits), f.code, strings.Join(hits, "\n"))
		}
	}
}

// codeText is a comment, or a text for people, of a source file.
type codeText struct {
	place, text string // the text in lower case
}

// proseOfCode are the comments of the product, and its texts for people: errors, log lines, help. A text has at least four words and is no SQL.
func proseOfCode(t *testing.T) (all []codeText) {
	t.Helper()
	sql := regexp.MustCompile(`\b(SELECT|INSERT|UPDATE|DELETE|FROM|WHERE|CREATE|ALTER|VALUES)\b`)
	for _, file := range proseFiles(t) {
		switch {
		case filepath.Ext(file) == ".sql":
			all = append(all, commentsOfSQL(t, file)...)
			continue
		case filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go"):
			continue
		}
		set := token.NewFileSet()
		source, err := parser.ParseFile(set, file, nil, parser.ParseComments)
		require.NoError(t, err)
		place := func(at token.Pos) string { return fmt.Sprintf("%s:%d", file, set.Position(at).Line) }
		for _, group := range source.Comments {
			for _, paragraph := range paragraphs(group.Text()) {
				all = append(all, codeText{place(group.Pos()), paragraph})
			}
		}
		ast.Inspect(source, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			require.NoError(t, err)
			if len(strings.Fields(text)) >= 4 && !sql.MatchString(text) {
				all = append(all, codeText{place(literal.Pos()), strings.ToLower(strings.Join(strings.Fields(text), " "))})
			}
			return true
		})
	}
	return all
}

// commentsOfSQL are the comments of a file of SQL. Lines of a comment that follow each other are one text.
func commentsOfSQL(t *testing.T, file string) (all []codeText) {
	t.Helper()
	for i, block := range regexp.MustCompile(`(?m)(?:--.*\n[ \t]*)+`).FindAllString(readPage(t, file), -1) {
		text := strings.NewReplacer("--", " ", "\n", " ").Replace(block)
		for _, paragraph := range paragraphs(text) {
			all = append(all, codeText{fmt.Sprintf("%s, comment %d", file, i+1), paragraph})
		}
	}
	return all
}

// Each phrase finds its plant, on a page and in a comment, and lets the sentence pass that looks alike.
func TestPhrasesFindTheirPlants(t *testing.T) {
	for _, p := range finders(t) {
		found := func(page string) (hits []string) {
			for _, paragraph := range paragraphs(page) {
				hits = append(hits, p.hits(paragraph)...)
			}
			return hits
		}
		require.NotEmpty(t, found("# Title\n\n- A point.\n- "+p.plant+"\n"), "%s: %s", p.pattern, p.plant)
		require.NotEmpty(t, found(strings.ReplaceAll(p.plant, " ", "\n")), "over the end of a line: %s", p.plant)
		require.Empty(t, found(p.fine), "%s: %s", p.pattern, p.fine)
		require.Empty(t, found("`"+p.plant+"`"), "code is no prose: %s", p.plant)
	}
}
