package configdoc

import (
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/oncebox/oncebox/retry"
)

// Struct is a Config that is to be described. Structs that it contains by value are described after it.
type Struct struct {
	// Defaults is the Config with its defaults, which WithDefaults returns for the zero value.
	Defaults any
	// Prefix is the beginning of the names of its fields' variables.
	Prefix string
	// Varies lists fields whose default depends on the machine, so that their comment cannot state it.
	Varies []string
	// Else lists further names of variables that are also read.
	Else map[string]string
}

// Tables returns the tables of the structs in Markdown, with a section for each type. root is the folder of the module.
// It returns an error that names each field whose comment states no default, or another one than the code sets.
func Tables(root string, structs ...Struct) (string, error) {
	w := writer{source: source{root: root}}
	for _, s := range structs {
		w.add(s, reflect.ValueOf(s.Defaults))
	}
	return w.out.String(), errors.Join(w.errs...)
}

// writer collects the sections of the page.
type writer struct {
	source source
	done   []reflect.Type
	out    strings.Builder
	errs   []error
}

// isConfig reports whether the type is a struct of this module with a section of its own, and returns the
// name under which it is documented.
func isConfig(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && strings.HasPrefix(t.PkgPath(), module+"/") && t.Name() != ""
}

func (w *writer) add(s Struct, v reflect.Value) {
	t := v.Type()
	if slices.Contains(w.done, t) {
		return
	}
	w.done = append(w.done, t)
	text, fields, err := w.source.structOf(t)
	if err != nil {
		w.errs = append(w.errs, err)
		return
	}
	fmt.Fprintf(&w.out, "\n### %s\n\n%s\n\n| variable | field | type | default | meaning |\n|---|---|---|---|---|\n", title(t), prose(text))
	var within []func()
	for f := range t.Fields() {
		if !f.IsExported() {
			continue
		}
		value, said := v.FieldByIndex(f.Index), fields[f.Name]
		if isPart(f.Type) {
			w.addPart(s, f, value, said.text)
			continue
		}
		if isConfig(f.Type) {
			fmt.Fprintf(&w.out, "| | `%s` | [`%s`](#%s) | | %s |\n", f.Name, said.kind, anchor(f.Type), prose(said.text))
			within = append(within, func() {
				w.add(Struct{Prefix: s.Prefix + f.Tag.Get("envPrefix"), Varies: s.Varies, Else: s.Else}, value)
			})
			continue
		}
		meaning, stated := split(said.text)
		cell, err := defaultCell(stated, value, slices.Contains(s.Varies, f.Name))
		if err != nil {
			w.errs = append(w.errs, fmt.Errorf("%s.%s: %w", title(t), f.Name, err))
		}
		fmt.Fprintf(&w.out, "|%s | `%s` | `%s` | %s | %s |\n", s.variable(f), f.Name, said.kind, cell, prose(meaning))
	}
	for _, next := range within {
		next()
	}
}

// isPart reports whether the type is a struct that several Configs contain with different defaults. Its fields become
// rows of the containing Config.
func isPart(t reflect.Type) bool { return t == reflect.TypeFor[retry.Policy]() }

// addPart writes the rows of such a struct. The comment of the containing field states the defaults of all rows.
func (w *writer) addPart(s Struct, part reflect.StructField, v reflect.Value, text string) {
	_, fields, err := w.source.structOf(part.Type)
	meaning, stated := split(text)
	w.errs = append(w.errs, err)
	of, path := Struct{Prefix: s.Prefix + part.Tag.Get("envPrefix")}, part.Name+"."
	if part.Anonymous {
		path = ""
	}
	for f := range part.Type.Fields() {
		value, said := v.FieldByIndex(f.Index), fields[f.Name]
		code, agrees := compare(stated, value)
		if !agrees {
			w.errs = append(w.errs, fmt.Errorf("%s: the comment says %q, and the code gives %s%s %v", part.Name, stated, path, f.Name, value))
		}
		fmt.Fprintf(&w.out, "|%s | `%s%s` | `%s` | `%s` | %s |\n",
			of.variable(f), path, f.Name, said.kind, code, prose(strings.TrimSpace(meaning+" "+said.text)))
		meaning = ""
	}
}

// variable returns the cell with a field's environment variable, empty if it has none.
func (s Struct) variable(f reflect.StructField) string {
	tag := f.Tag.Get("env")
	if tag == "" {
		return ""
	}
	name := s.Prefix + tag
	if other := s.Else[name]; other != "" {
		return fmt.Sprintf(" `%s`, else `%s`", name, other)
	}
	return fmt.Sprintf(" `%s`", name)
}

func title(t reflect.Type) string { return path.Base(t.PkgPath()) + "." + t.Name() }

// anchor returns the name that GitHub gives to a heading in links.
func anchor(t reflect.Type) string {
	return strings.ToLower(strings.ReplaceAll(title(t), ".", ""))
}
