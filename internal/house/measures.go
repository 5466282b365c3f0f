package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// tools are the folders of programs for operators. The rest of the product is linked into services.
var tools = []string{"cmd", "console", "ops"} //nolint:gochecknoglobals // a constant

// long is the number of lines above which a function counts as long.
const long = 60

func isTool(dir string) bool {
	top, _, _ := strings.Cut(dir, "/")
	return slices.Contains(tools, top)
}

func printMeasures(out io.Writer, t *tree, n tables) {
	var core, tool, files, prose, code int
	var functions []int
	for _, p := range t.packages {
		if isTool(p.dir) {
			tool += p.lines()
		} else {
			core += p.lines()
		}
		files += len(p.files)
		for _, f := range p.files {
			prose, code = prose+f.prose, code+f.code()
			functions = append(functions, f.functions()...)
		}
	}
	fmt.Fprintf(out, "product %d lines (core %d, tools %d) in %d files of %d packages; support %d, tests %d\n",
		core+tool, core, tool, files, len(t.packages), t.support, t.tests)
	fmt.Fprintf(out, "comment/code %.2f; %s\n", ratio(prose, code), describe(functions))
	fmt.Fprintf(out, "%d tables, %d views, %d SQL functions\n\n", n.tables, n.views, n.functions)

	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "lines\tfiles\tmean\tcomment/code\texported\t  package, largest file")
	for _, p := range t.sorted() {
		printPackage(w, p)
	}
	_ = w.Flush()
}

func printPackage(out io.Writer, p *pkg) {
	prose, code := 0, 0
	for _, f := range p.files {
		prose, code = prose+f.prose, code+f.code()
	}
	largest := slices.MaxFunc(p.files, func(a, b *file) int { return a.lines - b.lines })
	name := largest.path[strings.LastIndex(largest.path, "/")+1:]
	fmt.Fprintf(out, "%d\t%d\t%d\t%.2f\t%d\t  %s, %s %d\n",
		p.lines(), len(p.files), p.lines()/len(p.files), ratio(prose, code), p.exported(), p.dir, name, largest.lines)
}

func describe(functions []int) string {
	if len(functions) == 0 {
		return "no functions"
	}
	slices.Sort(functions)
	tooLong := 0
	for _, n := range functions {
		if n > long {
			tooLong++
		}
	}
	return fmt.Sprintf("%d functions, median %d lines, %.1f %% over %d",
		len(functions), functions[len(functions)/2], 100*ratio(tooLong, len(functions)), long)
}

func ratio(a, b int) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
