package oncebox_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each text of docs/errors.md is a text of the code. An ellipsis stands for what differs from case to case.
func TestErrorsOfThePageOccurInTheCode(t *testing.T) {
	texts := textsOfCode(t)
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(readPage(t, "docs/errors.md"), -1)
	require.Greater(t, len(rows), 30)
	for _, row := range rows {
		require.Empty(t, missing(texts, row[1]), "docs/errors.md quotes %q", row[1])
	}
	require.Equal(t, "the database takes no readings", missing(texts, "… the database takes no readings"), "a text that no code has is found")
}

// missing returns the first part of a quoted text that no code has, "" if the code has all of them.
func missing(texts, quoted string) string {
	for part := range strings.SplitSeq(quoted, "…") {
		if part = strings.TrimSpace(part); !strings.Contains(texts, part) {
			return part
		}
	}
	return ""
}

// textsOfCode are the texts of the product's code, each in a line of its own. Of texts that are joined by + there is one line.
func textsOfCode(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, file := range proseFiles(t) {
		if filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(source, func(n ast.Node) bool {
			text, is := joined(n)
			if is {
				all.WriteString(text + "\n")
			}
			return !is
		})
	}
	return all.String()
}

// joined returns the text of a literal, or of a sum that has one. What is not a literal becomes a blank.
func joined(n ast.Node) (text string, is bool) {
	switch n := n.(type) {
	case *ast.BasicLit:
		if n.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(n.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		left, isLeft := joined(n.X)
		right, isRight := joined(n.Y)
		return left + right, n.Op == token.ADD && (isLeft || isRight)
	}
	return "", false
}
