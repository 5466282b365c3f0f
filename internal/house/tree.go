package main

import (
	"fmt"
	"go/ast"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// modulePath is the import path of the root module. The paths of the modules within it begin with it.
const modulePath = "github.com/oncebox/oncebox"

// tree is all Go code below a folder.
type tree struct {
	packages map[string]*pkg // packages of the product, by folder; "." is the root
	support  int             // lines of packages that only tests or contributors use
	tests    int             // lines of test files
}

// pkg is a package of the product.
type pkg struct {
	dir   string
	files []*file // sorted by name
}

// supportFolder matches folders of packages that only tests, or people who work on this module, use.
var supportFolder = regexp.MustCompile(`(^|/)[a-z0-9]*(test|tests)(/|$)|(^|/)(check|configdoc|devenv|house|nightly|release|suite|walk)(/|$)`)

// left are names of folders that are not read, because nothing below them belongs to the product.
var left = []string{"bench", "docs", "examples", "testdata", "vendor"} //nolint:gochecknoglobals // a constant

// readTree reads all Go files, also those for other operating systems.
func readTree(fsys fs.FS) (*tree, error) {
	t := &tree{packages: map[string]*pkg{}}
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != ".":
			if slices.Contains(left, entry.Name()) || strings.HasPrefix(entry.Name(), ".") {
				return fs.SkipDir
			}
			return nil
		case path.Ext(name) != ".go":
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		return t.add(name, text)
	})
	if err != nil {
		return nil, fmt.Errorf("read the code: %w", err)
	}
	return t, nil
}

func (t *tree) add(name string, text []byte) error {
	dir := path.Dir(name)
	switch {
	case strings.HasSuffix(name, "_test.go"):
		t.tests += countLines(text)
		return nil
	case supportFolder.MatchString(dir):
		t.support += countLines(text)
		return nil
	}
	f, err := parse(name, text)
	if err != nil || ast.IsGenerated(f.syntax) {
		return err
	}
	p := t.packages[dir]
	if p == nil {
		p = &pkg{dir: dir}
		t.packages[dir] = p
	}
	p.files = append(p.files, f) // WalkDir visits files in the order of their names
	return nil
}

// sorted returns the packages, the largest one first.
func (t *tree) sorted() []*pkg {
	all := make([]*pkg, 0, len(t.packages))
	for _, p := range t.packages {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *pkg) int {
		if n := b.lines() - a.lines(); n != 0 {
			return n
		}
		return strings.Compare(a.dir, b.dir)
	})
	return all
}

func (p *pkg) lines() (n int) {
	for _, f := range p.files {
		n += f.lines
	}
	return n
}

// exported counts the exported names at package level and the exported methods of exported types.
func (p *pkg) exported() (n int) {
	for _, f := range p.files {
		for _, d := range f.syntax.Decls {
			n += exportedNames(d)
		}
	}
	return n
}

func exportedNames(d ast.Decl) (n int) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d))) {
			n++
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					n++
				}
			case *ast.ValueSpec:
				for _, name := range s.Names {
					if name.IsExported() {
						n++
					}
				}
			}
		}
	}
	return n
}

// receiver returns the name of a method's type.
func receiver(d *ast.FuncDecl) string {
	if name, ok := bare(d.Recv.List[0].Type).(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

// bare returns the name in the type of a field or receiver, without its star and type arguments.
func bare(e ast.Expr) ast.Expr {
	for {
		switch of := e.(type) {
		case *ast.StarExpr:
			e = of.X
		case *ast.ParenExpr:
			e = of.X
		case *ast.IndexExpr:
			e = of.X
		case *ast.IndexListExpr:
			e = of.X
		default:
			return e
		}
	}
}
