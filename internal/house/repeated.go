package main

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// span is a sequence of lines in a file.
type span struct {
	file        *file
	first, last int
}

// twins are two sequences of lines with the same text or the same shape.
type twins struct {
	a, b  span
	lines int // number of lines that count: not blank, a comment, an import or a lone bracket
	same  bool
}

// explanation is the reason why lines may stand in both of two declarations. A declaration is written
// "outbox/store.go Store.Add".
type explanation struct{ a, b, reason string }

// row is a counted line of code.
type row struct {
	file *file
	line int
}

// findTwins returns the longest sequences of at least minRepeatedRun lines that stand twice in the product.
// It looks for equal lines first, and then for lines that are equal when names, strings and numbers are
// blanked; those must have enough different shapes.
func findTwins(t *tree) []twins {
	var rows []row
	var texts, shapes []int
	ids := map[string]int{}
	border := 0 // negative numbers differ from all ids, so no run crosses from one file into the next
	number := func(text string) int {
		if ids[text] == 0 {
			ids[text] = len(ids) + 1
		}
		return ids[text]
	}
	for _, p := range t.sorted() {
		for _, f := range p.files {
			for line := f.line(endOfImports(f)); line < len(f.tokens); line++ {
				text, shape := normal(f.tokens[line])
				if text == "" {
					continue
				}
				rows = append(rows, row{f, line + 1})
				texts, shapes = append(texts, number(text)), append(shapes, number("shape "+shape))
			}
			border--
			rows, texts, shapes = append(rows, row{}), append(texts, border), append(shapes, border)
		}
	}
	exact := pairs(texts)
	found := make([]twins, 0, len(exact))
	covered := map[int][]match{} // by the distance between the two
	for _, r := range exact {
		found = append(found, r.twins(rows, true))
		covered[r.b-r.a] = append(covered[r.b-r.a], r)
	}
	for _, r := range pairs(shapes) {
		overlaps := func(o match) bool { return o.a < r.a+r.n && r.a < o.a+o.n }
		if !slices.ContainsFunc(covered[r.b-r.a], overlaps) && isVaried(shapes[r.a:r.a+r.n]) {
			found = append(found, r.twins(rows, false))
		}
	}
	return found
}

// isVaried reports whether the lines have more than two shapes. Lists have one or two, and may look alike.
func isVaried(shapes []int) bool {
	different := slices.Clone(shapes)
	slices.Sort(different)
	return len(slices.Compact(different)) >= minRepeatedRun*3/4
}

// normal returns the text of a line and its shape, both "" for a line that does not count.
func normal(words []word) (text, shape string) {
	var t, s strings.Builder
	counts := false
	for _, w := range words {
		t.WriteString(w.text + " ")
		switch w.kind {
		case token.IDENT:
			counts = true
			s.WriteString("a ")
		case token.INT, token.FLOAT, token.IMAG, token.CHAR, token.STRING:
			counts = true
			s.WriteString("1 ")
		default:
			counts = counts || w.kind.IsKeyword()
			s.WriteString(w.text + " ")
		}
	}
	if !counts {
		return "", ""
	}
	return t.String(), s.String()
}

// match says that the n rows from a on equal the n rows from b on.
type match struct{ a, b, n int }

// pairs returns all matches that cannot be extended.
func pairs(ids []int) (all []match) {
	starts := map[string][]int{}
	key := make([]byte, 0, 8*minRepeatedRun)
	for i := 0; i+minRepeatedRun <= len(ids); i++ {
		key = key[:0]
		for _, id := range ids[i : i+minRepeatedRun] {
			key = binary.AppendVarint(key, int64(id))
		}
		starts[string(key)] = append(starts[string(key)], i)
	}
	for _, at := range starts {
		for i, a := range at {
			for _, b := range at[i+1:] {
				if b-a < minRepeatedRun || a > 0 && ids[a-1] == ids[b-1] {
					continue // the rows overlap, or are part of a longer match
				}
				n := minRepeatedRun
				for b+n < len(ids) && a+n < b && ids[a+n] == ids[b+n] {
					n++
				}
				all = append(all, match{a, b, n})
			}
		}
	}
	slices.SortFunc(all, func(x, y match) int { return cmp.Or(cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b)) })
	return all
}

func (r match) twins(rows []row, same bool) twins {
	of := func(at int) span { return span{rows[at].file, rows[at].line, rows[at+r.n-1].line} }
	a, b := of(r.a), of(r.b)
	if b.file.path < a.file.path {
		a, b = b, a
	}
	return twins{a, b, r.n, same}
}

func endOfImports(f *file) token.Pos {
	end := f.syntax.Name.End()
	for _, d := range f.syntax.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT {
			end = g.End()
		}
	}
	return end
}

// declaration returns the file and the declaration in which the span begins.
func (s span) declaration() string {
	for _, d := range s.file.syntax.Decls {
		if s.file.line(d.End()) < s.first {
			continue
		}
		return s.file.path + " " + declarationName(d)
	}
	return s.file.path
}

func declarationName(d ast.Decl) string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil {
			return receiver(d) + "." + d.Name.Name
		}
		return d.Name.Name
	case *ast.GenDecl:
		switch s := d.Specs[0].(type) {
		case *ast.TypeSpec:
			return s.Name.Name
		case *ast.ValueSpec:
			return s.Names[0].Name
		}
	}
	return ""
}

func (s span) String() string { return fmt.Sprintf("%s:%d-%d", s.file.path, s.first, s.last) }

// repeated returns one finding for all sequences that stand twice, so that it does not change when code
// moves to another package.
func repeated(t *tree, explained []explanation) []finding {
	f := finding{rule: ruleRepeated, where: "product"}
	var text strings.Builder
	for _, w := range findTwins(t) {
		if slices.ContainsFunc(explained, w.isExplained) {
			continue
		}
		f.figure++
		what := "of one shape"
		if w.same {
			what = "the same"
		}
		fmt.Fprintf(&text, "\n\t%d lines, %s: %s and %s (%q, %q)", w.lines, what, w.a, w.b, w.a.declaration(), w.b.declaration())
	}
	if f.figure == 0 {
		return nil
	}
	f.text = fmt.Sprintf("%s: %d%s", f.rule, f.figure, text.String())
	return []finding{f}
}

func (w twins) isExplained(e explanation) bool {
	a, b := w.a.declaration(), w.b.declaration()
	return e.a == a && e.b == b || e.a == b && e.b == a
}
