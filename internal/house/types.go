package main

import (
	"go/ast"
	"path"
	"strings"
)

// typeName is a type of this module: the folder of its package and its name.
type typeName struct{ dir, name string }

func (n typeName) String() string { return n.dir + "." + n.name }

// declared is what the source shows about a type without type checking, which is enough to count methods.
type declared struct {
	methods  map[string]bool // of the type itself, or of an interface
	files    map[string]bool // files with methods of the type
	embeds   []typeName      // types of this module: embedded fields and interfaces, and the target of an alias
	isStruct bool
}

// types returns the types of the product by name, also types that functions declare.
type types map[typeName]*declared

func typesOf(t *tree) types {
	all := types{}
	for _, p := range t.packages {
		for _, f := range p.files {
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.TypeSpec:
					all.declare(p, f, n)
				case *ast.FuncDecl:
					if n.Recv != nil {
						d := all.at(typeName{p.dir, receiver(n)})
						d.methods[n.Name.Name] = true
						d.files[f.path] = true
					}
				}
				return true
			})
		}
	}
	return all
}

func (all types) at(name typeName) *declared {
	d := all[name]
	if d == nil {
		d = &declared{methods: map[string]bool{}, files: map[string]bool{}}
		all[name] = d
	}
	return d
}

func (all types) declare(p *pkg, f *file, spec *ast.TypeSpec) {
	d := all.at(typeName{p.dir, spec.Name.Name})
	switch of := spec.Type.(type) {
	case *ast.StructType:
		d.isStruct = true
		for _, field := range of.Fields.List {
			if len(field.Names) == 0 {
				d.embed(p, f, field.Type)
			}
		}
	case *ast.InterfaceType:
		for _, field := range of.Methods.List {
			for _, name := range field.Names {
				d.methods[name.Name] = true
			}
			if len(field.Names) == 0 {
				d.embed(p, f, field.Type)
			}
		}
	default:
		if spec.Assign.IsValid() {
			d.embed(p, f, of)
		}
	}
}

// embed adds an embedded type, if it is one of this module.
func (d *declared) embed(p *pkg, f *file, e ast.Expr) {
	switch of := bare(e).(type) {
	case *ast.Ident:
		d.embeds = append(d.embeds, typeName{p.dir, of.Name})
	case *ast.SelectorExpr:
		from, _ := of.X.(*ast.Ident)
		if dir, ours := strings.CutPrefix(f.imported(from.Name), modulePath); ours {
			d.embeds = append(d.embeds, typeName{path.Join(".", dir), of.Sel.Name})
		}
	}
}

// methods returns the methods of a type, together with those of embedded types of this module.
func (all types) methods(name typeName) map[string]bool {
	found := map[string]bool{}
	seen := map[typeName]bool{}
	var collect func(typeName)
	collect = func(name typeName) {
		d := all[name]
		if d == nil || seen[name] {
			return
		}
		seen[name] = true
		for m := range d.methods {
			found[m] = true
		}
		for _, e := range d.embeds {
			collect(e)
		}
	}
	collect(name)
	return found
}
