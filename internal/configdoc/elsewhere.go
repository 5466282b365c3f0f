package configdoc

import (
	"fmt"
	"reflect"
	"strings"
)

// elsewhere lists fields that other sections describe, grouped by these sections.
type elsewhere []*group

// group is the fields of a struct that one other section describes.
type group struct {
	section reflect.Type
	names   []string
}

// with returns the list with one more field.
func (e elsewhere) with(field string, section reflect.Type) elsewhere {
	for _, g := range e {
		if g.section == section {
			g.names = append(g.names, "`"+field+"`")
			return e
		}
	}
	return append(e, &group{section, []string{"`" + field + "`"}})
}

// String returns a sentence with a link to each section. It is empty without fields.
func (e elsewhere) String() string {
	if len(e) == 0 {
		return ""
	}
	parts := make([]string, len(e))
	for i, g := range e {
		parts[i] = fmt.Sprintf("%s ([%s](#%s))", strings.Join(g.names, ", "), title(g.section), anchor(g.section))
	}
	return "\nDescribed in other sections: " + strings.Join(parts, "; ") + ".\n"
}
