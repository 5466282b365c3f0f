package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"strings"
)

// file is a Go source file of the product.
type file struct {
	path   string
	lines  int
	set    *token.FileSet // positions of this file only
	syntax *ast.File
	text   []byte
	tokens [][]word // by line, from 0, without comments
	prose  int      // lines with only a comment
}

// word is a token. A string over several lines has a word for each.
type word struct {
	kind token.Token
	text string
}

func parse(name string, text []byte) (*file, error) {
	f := &file{path: name, lines: countLines(text), set: token.NewFileSet(), text: text}
	var err error
	if f.syntax, err = parser.ParseFile(f.set, name, text, parser.ParseComments|parser.SkipObjectResolution); err != nil {
		return nil, err
	}
	f.scan()
	return f, nil
}

// scan fills tokens and prose.
func (f *file) scan() {
	var s scanner.Scanner
	set := token.NewFileSet()
	of := set.AddFile(f.path, -1, len(f.text))
	s.Init(of, f.text, nil, scanner.ScanComments)
	f.tokens = make([][]word, f.lines+1)
	comment := make([]bool, f.lines+1)
	for {
		pos, kind, text := s.Scan()
		if kind == token.EOF {
			break
		}
		if kind == token.SEMICOLON && text == "\n" {
			continue // the scanner has inserted this semicolon
		}
		if kind.IsOperator() {
			text = kind.String()
		}
		first := of.Line(pos) - 1
		for i, line := range strings.Split(text, "\n") {
			if kind == token.COMMENT {
				comment[first+i] = true
			} else {
				f.tokens[first+i] = append(f.tokens[first+i], word{kind, strings.TrimSpace(line)})
			}
		}
	}
	for i, is := range comment {
		if is && len(f.tokens[i]) == 0 {
			f.prose++
		}
	}
}

// code returns how many lines hold code.
func (f *file) code() (n int) {
	for _, line := range f.tokens {
		if len(line) > 0 {
			n++
		}
	}
	return n
}

// functions returns the length in lines of each function that has more than one.
func (f *file) functions() (all []int) {
	for _, d := range f.syntax.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			if n := f.line(fn.End()) - f.line(fn.Pos()) + 1; n > 1 {
				all = append(all, n)
			}
		}
	}
	return all
}

// imported returns the import path behind a package's name in this file, "" if it is not imported.
func (f *file) imported(name string) string {
	for _, i := range f.syntax.Imports {
		at := strings.Trim(i.Path.Value, `"`)
		if i.Name != nil && i.Name.Name == name || i.Name == nil && (at == name || strings.HasSuffix(at, "/"+name)) {
			return at
		}
	}
	return ""
}

func (f *file) line(at token.Pos) int { return f.set.Position(at).Line }

func countLines(text []byte) int {
	n := bytes.Count(text, []byte("\n"))
	if len(text) > 0 && text[len(text)-1] != '\n' {
		n++
	}
	return n
}
