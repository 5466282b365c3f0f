package configdoc

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// module is the path of this module.
const module = "github.com/oncebox/oncebox"

// source reads the files of the module.
type source struct{ root string }

// said is the type and the comment of a field.
type said struct{ kind, text string }

// structOf returns the comment of a type, and the types and comments of its fields.
func (s source) structOf(t reflect.Type) (text string, fields map[string]said, err error) {
	specs, err := s.specs(filepath.Join(s.root, strings.TrimPrefix(t.PkgPath(), module+"/")))
	if err != nil {
		return "", nil, err
	}
	spec, found := specs[t.Name()]
	if !found {
		return "", nil, fmt.Errorf("configdoc: %s has no type %s", t.PkgPath(), t.Name())
	}
	fields = map[string]said{}
	for _, f := range spec.structure.Fields.List {
		if embedded := types.ExprString(f.Type); len(f.Names) == 0 {
			fields[embedded[strings.LastIndex(embedded, ".")+1:]] = said{kind: embedded, text: f.Doc.Text()}
		}
		for _, name := range f.Names {
			fields[name.Name] = said{kind: types.ExprString(f.Type), text: f.Doc.Text()}
		}
	}
	return spec.text, fields, nil
}

// spec is the source of a struct, with the comment of its type.
type spec struct {
	text      string
	structure *ast.StructType
}

// specs returns the structs of the package in a folder, by name.
func (source) specs(folder string) (map[string]spec, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, fmt.Errorf("configdoc: %w", err)
	}
	out := map[string]spec{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("configdoc: %w", err)
		}
		for _, d := range tree.Decls {
			decl, isDecl := d.(*ast.GenDecl)
			if !isDecl {
				continue
			}
			for _, one := range decl.Specs {
				if name, structure, isStruct := structOf(one); isStruct {
					out[name] = spec{text: decl.Doc.Text(), structure: structure}
				}
			}
		}
	}
	return out, nil
}

func structOf(s ast.Spec) (name string, structure *ast.StructType, isStruct bool) {
	t, isType := s.(*ast.TypeSpec)
	if !isType {
		return "", nil, false
	}
	structure, isStruct = t.Type.(*ast.StructType)
	return t.Name.Name, structure, isStruct
}

// Configs returns the Config structs, "uow.Config" and so on, of the packages that other modules can import.
func Configs(root string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if path != root {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
				return filepath.SkipDir // another module
			}
		}
		if name := d.Name(); slices.Contains([]string{"internal", "testdata", "examples", "cmd", ".git"}, name) {
			return filepath.SkipDir
		}
		specs, err := source{}.specs(path)
		for name := range specs {
			if ast.IsExported(name) && strings.HasSuffix(name, "Config") {
				out = append(out, filepath.Base(path)+"."+name)
			}
		}
		return err
	})
	slices.Sort(out)
	return out, err
}
