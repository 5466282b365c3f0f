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
	// Above lists structs that another part of the page describes.
	Above []any

	inner bool // the struct is a field of another one, and gets its settings from there if they have the same names
}

// longestCell is the length of the longest text that fits into a cell.
const longestCell = 250

// Tables returns the tables of the structs in Markdown, with a section for each type. root is the folder of the module. A cell has the comment of a field.
// If the comment is too long, the cell has its first sentence and the sentence about -1, and the other sentences are below the table. A
// field without a variable that another section describes is only named, with a link to that section.
//
// It returns an error that names each field whose comment states no default, or another one than the code sets.
func Tables(root string, structs ...Struct) (string, error) {
	w := written(root, structs)
	return w.out.String(), errors.Join(w.errs...)
}

// First returns a table of the named variables alone.
func First(root string, structs []Struct, variables ...string) (string, error) {
	w := written(root, structs)
	var out strings.Builder
	out.WriteString("\n| variable | default | meaning |\n|---|---|---|\n")
	for _, name := range variables {
		r, found := w.rows[name]
		if !found {
			w.errs = append(w.errs, fmt.Errorf("configdoc: no field has the variable %s", name))
		}
		fmt.Fprintf(&out, "|%s | %s | %s |\n", r.variable, r.cell, r.meaning)
	}
	return out.String(), errors.Join(w.errs...)
}

func written(root string, structs []Struct) *writer {
	w := &writer{source: source{root: root}, rows: map[string]row{}, seen: map[string]place{}}
	for _, s := range structs {
		for _, above := range s.Above {
			w.done = append(w.done, reflect.TypeOf(above))
		}
		w.add(s, reflect.ValueOf(s.Defaults))
	}
	return w
}

// writer collects the sections of the page.
type writer struct {
	source source
	done   []reflect.Type
	rows   map[string]row   // of fields with a variable, by its name
	seen   map[string]place // fields that a section has, by their names
	out    strings.Builder
	errs   []error
}

// place is a field's type, and the struct whose section describes the field.
type place struct{ field, section reflect.Type }

// row is a line of a table, and what is said below the table. minus is the sentence about -1, until fit adds it to meaning.
type row struct{ variable, field, kind, cell, meaning, minus, more string }

func (r *row) String() string {
	return fmt.Sprintf("|%s | `%s` | %s | %s | %s |\n", r.variable, r.field, r.kind, r.cell, r.meaning)
}

// fit moves the other sentences into the cell if there is room: a reader who has them below the table has to look for the first one. The sentence about
// -1 always stands in the cell, as its last sentence.
func (r *row) fit() {
	if len(r.meaning)+len(r.more)+len(r.minus) < longestCell {
		r.meaning, r.more = strings.TrimSpace(r.meaning+" "+r.more), ""
	}
	r.meaning, r.minus = strings.TrimSpace(r.meaning+" "+r.minus), ""
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
	var rows []row
	var again elsewhere
	var within []func()
	for f := range t.Fields() {
		if !f.IsExported() {
			continue
		}
		value, said := v.FieldByIndex(f.Index), fields[f.Name]
		if isPart(f.Type) {
			rows = append(rows, w.part(s, t, f, value, said.text)...)
			continue
		}
		r := w.row(s, title(t), f, value, said)
		if w.isAgain(s, f) {
			again = again.with(f.Name, w.describes(f))
			continue
		}
		w.seen[f.Name] = place{f.Type, t}
		rows = append(rows, r)
		if isConfig(f.Type) {
			within = append(within, func() {
				w.add(Struct{Prefix: s.Prefix + f.Tag.Get("envPrefix"), Varies: s.Varies, Else: s.Else, inner: true}, value)
			})
		}
	}
	w.section(t, text, rows, again)
	for _, next := range within {
		next()
	}
}

// section writes the section of a struct.
func (w *writer) section(t reflect.Type, text string, rows []row, again elsewhere) {
	fmt.Fprintf(&w.out, "\n### %s\n\n%s\n\n| variable | field | type | default | meaning |\n|---|---|---|---|---|\n", title(t), prose(text))
	var more []string
	for _, r := range rows {
		w.out.WriteString(r.String())
		if name, _, _ := strings.Cut(r.variable, ","); name != "" {
			w.rows[strings.Trim(name, " `")] = r
		}
		if r.more != "" {
			more = append(more, fmt.Sprintf("- `%s`: %s\n", r.field, r.more))
		}
	}
	if len(more) > 0 {
		w.out.WriteString("\n" + strings.Join(more, ""))
	}
	w.out.WriteString(again.String())
}

// isAgain reports whether a field without a variable is in a section above as well. A plain value with the same name may be another setting, unless
// the section above is that of the struct that contains this one, and so has set it.
func (w *writer) isAgain(s Struct, f reflect.StructField) bool {
	if s.variable(f) != "" {
		return false
	}
	if isConfig(f.Type) {
		return slices.Contains(w.done, f.Type)
	}
	if w.seen[f.Name].field != f.Type {
		return false
	}
	if slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Func, reflect.Interface}, f.Type.Kind()) {
		return true
	}
	for _, r := range w.rows {
		if r.field == f.Name {
			return s.inner
		}
	}
	return false
}

// describes returns the struct whose section describes a field that is in a section above as well.
func (w *writer) describes(f reflect.StructField) reflect.Type {
	if isConfig(f.Type) {
		return f.Type
	}
	return w.seen[f.Name].section
}

// row returns the row of a field.
func (w *writer) row(s Struct, of string, f reflect.StructField, value reflect.Value, said said) row {
	meaning, stated := split(said.text)
	r := row{variable: s.variable(f), field: f.Name, kind: "`" + said.kind + "`"}
	w.errs = append(w.errs, misnamed(of, reflect.StructField{}, f), misnamedSection(of, f))
	if isConfig(f.Type) {
		r.kind = fmt.Sprintf("[`%s`](#%s)", said.kind, anchor(f.Type))
		r.meaning, _, _ = sentences(f.Name, said.text)
		return r
	}
	var err error
	if r.cell, err = defaultCell(stated, value, slices.Contains(s.Varies, f.Name)); err != nil {
		w.errs = append(w.errs, fmt.Errorf("%s.%s: %w", of, f.Name, err))
	}
	r.meaning, r.minus, r.more = sentences(f.Name, meaning)
	if r.fit(); len(r.meaning) > longestCell {
		w.errs = append(w.errs, fmt.Errorf("%s.%s: the first sentence of the comment has %d characters: make it shorter", of, f.Name, len(r.meaning)))
	}
	return r
}

// isPart reports whether the type is a struct that several Configs contain with different defaults. Its fields become
// rows of the containing Config.
func isPart(t reflect.Type) bool { return t == reflect.TypeFor[retry.Policy]() }

// part returns the rows of such a struct. The comment of the containing field states the defaults of all rows. Its first sentence, which names what is
// tried again, stands in the cell of the first row.
func (w *writer) part(s Struct, within reflect.Type, part reflect.StructField, v reflect.Value, text string) (rows []row) {
	_, fields, err := w.source.structOf(part.Type)
	meaning, stated := split(text)
	w.errs = append(w.errs, err)
	of, path := Struct{Prefix: s.Prefix + part.Tag.Get("envPrefix")}, part.Name+"."
	if part.Anonymous {
		path = ""
	}
	what, _, more := sentences("", strings.Replace(meaning, part.Name+" sets", "Delay and MaxDelay set", 1))
	for f := range part.Type.Fields() {
		value, said := v.FieldByIndex(f.Index), fields[f.Name]
		code, agrees := compare(stated, value)
		if !agrees {
			w.errs = append(w.errs, fmt.Errorf("%s: the comment says %q, and the code gives %s%s %v", part.Name, stated, path, f.Name, value))
		}
		w.errs = append(w.errs, misnamed(title(within), part, f))
		r := row{variable: of.variable(f), field: path + f.Name, kind: "`" + said.kind + "`", cell: "`" + code + "`"}
		r.meaning, r.minus, r.more = sentences(f.Name, said.text)
		r.meaning, r.more = strings.TrimSpace(r.meaning+" "+what), strings.TrimSpace(r.more+" "+more)
		r.fit()
		what, more = "", ""
		rows = append(rows, r)
	}
	return rows
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
