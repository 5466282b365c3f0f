package migrations

import (
	"io/fs"
	"iter"
	"regexp"
	"strings"
)

var (
	createStatement = regexp.MustCompile(`^CREATE (?:UNIQUE |UNLOGGED )?(TABLE|VIEW|SEQUENCE|INDEX|FUNCTION) (\w+)`)
	viewReads       = regexp.MustCompile(`\b(FROM|JOIN) (\w+)`)
	viewColumns     = regexp.MustCompile(`\{columns of (\w+)\}`)
)

// made is an object that a file creates.
type made struct{ kind, name string }

// makes lists the objects that a file creates.
func makes(file string) (list []made) {
	for line := range strings.Lines(content(file)) {
		if m := createStatement.FindStringSubmatch(line); m != nil {
			list = append(list, made{strings.ToLower(m[1]), m[2]})
		}
	}
	return list
}

// source is the text by which a function or a view is made.
type source struct {
	create   string // without "CREATE FUNCTION" or "CREATE VIEW"
	body     string // the part of a function that PostgreSQL stores
	template bool   // contains {schema} in place of the schema
}

// statement returns what follows CREATE FUNCTION or CREATE VIEW, with the schema filled in.
func (s source) statement(p place) string { return p.ident + "." + s.in(p, s.create) }

// bodyIn returns the text that PostgreSQL stores in pg_proc.prosrc.
func (s source) bodyIn(p place) string { return s.in(p, s.body) }

func (s source) in(p place, text string) string {
	if s.template {
		return p.fill(text)
	}
	return text
}

// sources returns the sources in all files, by the name of the object. Each start of an App calls it, and regular
// expressions over whole files would take a hundred times as long as Cut does.
func sources() map[string]source {
	list := map[string]source{}
	for _, file := range names() {
		text := content(file)
		addFunctions(text, false, list)
		// The bodies of these functions name the schema, so they are made from a template with {schema}.
		for template := range between(text, "SELECT oncebox_create($text$", "$text$);") {
			addFunctions(template, true, list)
		}
		columns := columnsOfOutbox(text)
		for view := range between(text, "\nCREATE VIEW ", ";") {
			name, query, _ := strings.Cut(viewColumns.ReplaceAllString(view, columns), " ")
			list[name] = source{create: name + " " + viewReads.ReplaceAllString(query, "$1 {schema}.$2") + ";", template: true}
		}
	}
	return list
}

// columnsOfOutbox lists the columns of the table "outbox" for the views of its file, as the file itself does from the catalog. ${1} stands for the
// relation that has them.
func columnsOfOutbox(file string) string {
	var list []string
	for table := range between(file, "\nCREATE TABLE outbox (\n", "\n)") {
		for line := range strings.Lines(table) {
			switch name, _, _ := strings.Cut(strings.TrimSpace(line), " "); name {
			case "--":
			case "event_metadata":
				list = append(list, "${1}.event_metadata::json AS event_metadata")
			default:
				list = append(list, "${1}."+name)
			}
		}
	}
	return strings.Join(list, ", ")
}

// addFunctions adds the functions that a text creates.
func addFunctions(text string, template bool, list map[string]source) {
	const quote = "$f$"
	for create := range between(text, "\nCREATE FUNCTION ", quote+";") {
		name, _, _ := strings.Cut(create, "(")
		_, body, _ := strings.Cut(create, quote)
		list[name] = source{create: create + quote + ";", body: body, template: template}
	}
}

// between yields what stands between a beginning and the next end.
func between(text, begin, end string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for more := true; more; {
			var part string
			if _, text, more = strings.Cut(text, begin); more {
				part, text, more = strings.Cut(text, end)
				more = more && yield(part)
			}
		}
	}
}

// content returns the text of a file.
func content(file string) string {
	text, err := fs.ReadFile(FS(), file)
	if err != nil {
		panic(err) // cannot happen: the name is that of an embedded file
	}
	return string(text)
}
