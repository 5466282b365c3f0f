package migrations

import (
	"io/fs"
	"regexp"
	"strings"
)

var (
	createStatement = regexp.MustCompile(`(?m)^CREATE (?:UNIQUE |UNLOGGED )?(TABLE|VIEW|SEQUENCE|INDEX|FUNCTION) (\w+)`)
	templateText    = regexp.MustCompile(`(?s)SELECT oncebox_create\(\$text\$(.*?)\$text\$\);`)
	functionText    = regexp.MustCompile(`(?ms)^CREATE FUNCTION (\w+)(\(.*?AS \$f\$)(.*?)(\$f\$;)`)
	viewText        = regexp.MustCompile(`(?ms)^CREATE VIEW (\w+) (AS\n.*?;)`)
	viewReads       = regexp.MustCompile(`\b(FROM|JOIN) (\w+)`)
)

// made is something that a file creates under a name of its own.
type made struct{ kind, name string }

// makes lists what a file creates.
func makes(file string) (list []made) {
	for _, m := range createStatement.FindAllStringSubmatch(content(file), -1) {
		list = append(list, made{strings.ToLower(m[1]), m[2]})
	}
	return list
}

// source is how a function or a view is made.
type source struct {
	create   string // the statement without "CREATE FUNCTION" or "CREATE VIEW"
	body     string // what PostgreSQL keeps of a function
	template bool   // {schema} stands for the schema
}

func (s source) statement(p place) string { return p.ident + "." + s.in(p, s.create) }

func (s source) bodyIn(p place) string { return s.in(p, s.body) }

func (s source) in(p place, text string) string {
	if s.template {
		return p.fill(text)
	}
	return text
}

// sources are those of all files, by the name of what they make.
func sources() map[string]source {
	list := map[string]source{}
	add := func(text string, template bool) {
		for _, m := range functionText.FindAllStringSubmatch(text, -1) {
			list[m[1]] = source{create: m[1] + m[2] + m[3] + m[4], body: m[3], template: template}
		}
	}
	for _, file := range names() {
		text := content(file)
		add(text, false)
		for _, m := range templateText.FindAllStringSubmatch(text, -1) {
			add(m[1], true)
		}
		for _, m := range viewText.FindAllStringSubmatch(text, -1) {
			list[m[1]] = source{create: m[1] + " " + viewReads.ReplaceAllString(m[2], "$1 {schema}.$2"), template: true}
		}
	}
	return list
}

// content is the text of a file.
func content(file string) string {
	text, err := fs.ReadFile(FS(), file)
	if err != nil {
		panic(err) // the name is that of an embedded file
	}
	return string(text)
}
