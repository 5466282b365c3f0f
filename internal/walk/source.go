package walk

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
)

// traced returns a Go file with a call of trace.Enter at the beginning of each function. The call is on the
// line of the opening brace, so that line numbers stay the same. lines gets the length of each function, by
// the text that is passed to Enter.
func traced(full, name string, lines map[string]int) ([]byte, error) {
	text, err := os.ReadFile(full) //nolint:gosec // a file of this module
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, full, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	from := 0
	upTo := func(pos token.Pos, insert string) {
		at := set.Position(pos).Offset
		out.Write(text[from:at])
		out.WriteString(insert)
		from = at
	}
	upTo(file.Name.End(), "; import walktrace "+fmt.Sprintf("%q", traceImport))
	for _, d := range file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		place := name + " " + fn.Name.Name
		lines[place] = max(lines[place], set.Position(fn.End()).Line-set.Position(fn.Pos()).Line+1)
		upTo(fn.Body.Lbrace+1, fmt.Sprintf("walktrace.Enter(%q);", place))
	}
	out.Write(text[from:])
	out.WriteString("\nvar _ = walktrace.Enter\n") // so that a file without functions uses the import
	return out.Bytes(), nil
}
