package main

import (
	"cmp"
	"fmt"
	"slices"
)

// The limits. A file is no border for code, because any method of a type can use all its fields. So
// packages and types are kept small.
const (
	maxFiles        = 20   // of a package
	maxLines        = 3500 // of a package
	maxExported     = 100  // names of a package, see pkg.exported
	maxOutbox       = 60   // exported names of outbox, the package that users see first
	maxFileLines    = 400
	maxMethodFiles  = 6  // files that hold the methods of one type
	maxEmbedded     = 10 // methods of an embedded type of this module; with more, the outer type only passes calls on
	minRepeatedRun  = 8  // lines that may not stand twice
	ruleFiles       = "files of a package"
	ruleLines       = "lines of a package"
	ruleExported    = "exported names of a package"
	ruleFileLines   = "lines of a file"
	ruleMethodFiles = "files with methods of a type"
	ruleEmbedded    = "methods of an embedded type"
	ruleRepeated    = "repeated runs of lines"
)

// apiTypes embed another type on purpose: their users call its methods.
var apiTypes = map[typeName]bool{ //nolint:gochecknoglobals // a constant
	{"uow", "Tx"}: true, // a unit of work that its owner ends
}

// finding is a place that breaks a rule.
type finding struct {
	rule   string
	where  string // identifies the place, also after lines have moved
	figure int
	text   string
}

// findings returns all places that break a rule, except for repeated lines that the list explains.
func findings(t *tree, explained []explanation) (all []finding) {
	for _, p := range t.packages {
		exported := maxExported
		if p.dir == "outbox" {
			exported = maxOutbox
		}
		all = append(all, above(ruleFiles, p.dir, len(p.files), maxFiles)...)
		all = append(all, above(ruleLines, p.dir, p.lines(), maxLines)...)
		all = append(all, above(ruleExported, p.dir, p.exported(), exported)...)
		for _, f := range p.files {
			all = append(all, above(ruleFileLines, f.path, f.lines, maxFileLines)...)
		}
	}
	known := typesOf(t)
	for name, d := range known {
		all = append(all, above(ruleMethodFiles, name.String(), len(d.files), maxMethodFiles)...)
		for _, e := range d.embeds {
			if d.isStruct && !apiTypes[name] {
				all = append(all, above(ruleEmbedded, name.String()+" embeds "+e.String(), len(known.methods(e)), maxEmbedded)...)
			}
		}
	}
	all = append(all, repeated(t, explained)...)
	slices.SortFunc(all, func(a, b finding) int { return cmp.Or(cmp.Compare(a.rule, b.rule), cmp.Compare(a.where, b.where)) })
	return all
}

func above(rule, where string, figure, limit int) []finding {
	if figure <= limit {
		return nil
	}
	return []finding{{rule, where, figure, fmt.Sprintf("%s: %s: %d, at most %d", where, rule, figure, limit)}}
}
