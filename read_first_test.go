package oncebox_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The comment of each package that has a doc.go ends with the places to read first: "Read first: file.go:Func, then other.go". Each of them exists.
func TestDocsOfPackagesSayWhatToReadFirst(t *testing.T) {
	seen := 0
	for _, file := range proseFiles(t) {
		aside := regexp.MustCompile(`^(analysis|bench|examples|docs|console/browsertest|httpmw/fasthttpmw|internal/endurance|internal/metricstest/service)/`)
		if filepath.Base(file) != "doc.go" || aside.MatchString(file) {
			continue
		}
		seen++
		source, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		require.NoError(t, err)
		_, first, ok := strings.Cut(source.Doc.Text(), "\nRead first: ")
		if !ok || strings.Contains(strings.TrimSpace(first), "\n\n") {
			t.Errorf("%s: end the comment with a paragraph \"Read first: file.go:Func, then other.go\"", file)
			continue
		}
		places := regexp.MustCompile(`([\w./]+\.go)(?::([\w.]*\w))?`).FindAllStringSubmatch(first, -1)
		require.NotEmpty(t, places, file)
		for _, place := range places {
			named := filepath.Join(filepath.Dir(file), place[1])
			if _, err := os.Stat(named); err != nil {
				named = place[1] // from the root
			}
			if !declares(named, place[2]) {
				t.Errorf("%s: Read first names %s, which is not there: name the place that does it now", file, place[0])
			}
		}
	}
	require.Greater(t, seen, 30)
}

// declares reports whether a file exists and has a function, a method (type.method), a type or a value of this name, if a name is given.
func declares(file, name string) bool {
	source, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return false
	}
	name = name[strings.LastIndex(name, ".")+1:]
	for _, d := range source.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.Name == name {
				return true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if t, ok := spec.(*ast.TypeSpec); ok && t.Name.Name == name {
					return true
				}
				if v, ok := spec.(*ast.ValueSpec); ok && v.Names[0].Name == name {
					return true
				}
			}
		}
	}
	return name == ""
}
