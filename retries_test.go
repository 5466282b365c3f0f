package oncebox_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// docs/retries.md has a row for each retry.Policy in the source, with its pauses, and no other one.
func TestRetriesAreThoseOfTheSource(t *testing.T) {
	page, err := os.ReadFile("docs/retries.md")
	require.NoError(t, err)
	var listed []string
	for _, row := range regexp.MustCompile(`(?m)^\| [^|]+ \| ([^|]+) \| ([^|]+) \|[^|]*\|[^|]*\| ([a-z/]+) \|$`).FindAllStringSubmatch(string(page), -1) {
		if row[1] != "first pause" {
			listed = append(listed, fmt.Sprintf("%s: %s to %s", row[3], strings.Trim(row[1], "`"), strings.Trim(row[2], "`")))
		}
	}
	require.ElementsMatch(t, policies(t), listed)
}

// Each variable that the page names has the default that it says, as docs/config.md has it, which is checked against the code.
func TestRetriesHaveTheDefaultsOfTheCode(t *testing.T) {
	page, err := os.ReadFile("docs/retries.md")
	require.NoError(t, err)
	settings, err := os.ReadFile("docs/config.md")
	require.NoError(t, err)
	named := regexp.MustCompile("`(ONCEBOX_[A-Z_]+)`( \\(([^)]+)\\))?").FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, named)
	for _, variable := range named {
		row := regexp.MustCompile("(?m)^\\| `" + variable[1] + "`[^|]*\\|[^|]+\\|[^|]+\\| `([^`]+)`").FindSubmatch(settings)
		require.NotNil(t, row, "docs/config.md has no %s", variable[1])
		require.Equal(t, string(row[1]), variable[3], variable[1])
	}
}

// policies are the literals of retry.Policy in the source with constant pauses, or with a setting for a pause.
func policies(t *testing.T) (found []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"bench", "examples", "analysis", "testdata", ".git", "docs"}, path):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.CompositeLit)
			if !ok || nameOf(literal.Type) != "Policy" || len(literal.Elts) != 2 {
				return true
			}
			pkg, _, _ := strings.Cut(strings.Replace(filepath.Dir(path), ".", "oncebox", 1), "/internal/")
			first, longest := pauseOf(t, path, literal.Elts[0]), pauseOf(t, path, literal.Elts[1])
			if first != "" { // one that is made of another one is no row
				found = append(found, fmt.Sprintf("%s: %s to %s", pkg, first, longest))
			}
			return true
		})
		return nil
	}))
	return found
}

// pauseOf is an element of a literal as the page has it: a duration, or the name of a setting.
func pauseOf(t *testing.T, path string, element ast.Expr) string {
	t.Helper()
	value := element.(*ast.KeyValueExpr).Value
	if d, ok := durationOf(t, path, value); ok {
		text := regexp.MustCompile(`(\D)0[ms]`).ReplaceAllString(d.String(), "$1")
		return regexp.MustCompile(`(\D)0[ms]$`).ReplaceAllString(text, "$1")
	}
	if selector, ok := value.(*ast.SelectorExpr); ok {
		return selector.Sel.Name
	}
	return ""
}

// durationOf evaluates a duration: a unit of package time, a product, or a constant of the same package.
func durationOf(t *testing.T, path string, expr ast.Expr) (time.Duration, bool) {
	t.Helper()
	units := map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}
	switch e := expr.(type) {
	case *ast.SelectorExpr:
		return units[e.Sel.Name], units[e.Sel.Name] != 0
	case *ast.BasicLit:
		n, err := strconv.Atoi(e.Value)
		return time.Duration(n), err == nil
	case *ast.BinaryExpr:
		x, isX := durationOf(t, path, e.X)
		y, isY := durationOf(t, path, e.Y)
		return time.Duration(int64(x) * int64(y)), isX && isY
	case *ast.Ident:
		return constantOf(t, path, e.Name)
	default:
		return 0, false
	}
}

func constantOf(t *testing.T, path, name string) (time.Duration, bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.go"))
	require.NoError(t, err)
	for _, other := range files {
		file, err := parser.ParseFile(token.NewFileSet(), other, nil, 0)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			if constants, ok := decl.(*ast.GenDecl); ok && constants.Tok == token.CONST {
				for _, s := range constants.Specs {
					c := s.(*ast.ValueSpec)
					if c.Names[0].Name == name && len(c.Values) == 1 {
						return durationOf(t, other, c.Values[0])
					}
				}
			}
		}
	}
	return 0, false
}
