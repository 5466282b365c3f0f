package walk

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Page is the page that describes the way of an event through the code. Its path begins at the module's root.
const Page = "docs/architecture.md"

// Described returns the stops that the section "The way of one event" of a page names, as "1. `package/file.go Func`: what happens". Each of its three
// parts is a stretch.
func Described(page string) (Way, error) {
	_, section, _ := strings.Cut(page, "\n## The way of one event\n")
	section, _, _ = strings.Cut(section, "\n## ")
	parts := strings.Split(section, "\n### ")
	if len(parts) != 4 {
		return Way{}, fmt.Errorf("%s: the section \"The way of one event\" has %d parts: write three, from Save, from NOTIFY and from the broker on",
			Page, len(parts)-1)
	}
	stops := func(part string) (list []Stop) {
		for _, line := range regexp.MustCompile("(?m)^\\d+\\. `(\\S+\\.go) (\\w+)`: \\S").FindAllStringSubmatch(part, -1) {
			list = append(list, Stop{File: line[1], Func: line[2]})
		}
		return list
	}
	return Way{Write: stops(parts[1]), Relay: stops(parts[2]), Receive: stops(parts[3])}, nil
}

// Missing returns what to change on the page, for each stop that the code does not have.
func (w Way) Missing(module fs.FS) (mend []string, err error) {
	declared := map[string][]string{} // files that declare a function, by its name
	err = fs.WalkDir(module, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(module, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				declared[fn.Name.Name] = append(declared[fn.Name.Name], name)
			}
		}
		return nil
	})
	for _, s := range w.All() {
		if files := declared[s.Func]; !slices.Contains(files, s.File) {
			mend = append(mend, fmt.Sprintf("%s names `%s`: %s", Page, s, moved(s, files)))
		}
	}
	return mend, err
}

// moved returns a proposal for a stop that no longer exists: files that have a function with its name.
func moved(s Stop, files []string) string {
	slices.SortStableFunc(files, func(a, b string) int { return nearness(s, b) - nearness(s, a) })
	switch {
	case len(files) == 0:
		return "no function has this name. Name the function that does it now, or take the stop out and number the others anew"
	case len(files) > 3:
		files = files[:3]
	}
	return "it is not there. If it has moved, write `" + strings.Join(files, " "+s.Func+"` or `") + " " + s.Func + "`"
}

// nearness returns the number of leading folders that two files have in common.
func nearness(s Stop, file string) (n int) {
	a, b := strings.Split(s.File, "/"), strings.Split(file, "/")
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// OutOfOrder returns what to change on the page, for each stop that a recorded way has passed at another
// place or not at all.
func (w Way) OutOfOrder(recorded Way) (mend []string) {
	for _, stretch := range []struct {
		name           string
		page, recorded []Stop
	}{{"write", w.Write, recorded.Write}, {"relay", w.Relay, recorded.Relay}, {"receive", w.Receive, recorded.Receive}} {
		before, at := Stop{}, -1
		for _, s := range stretch.page {
			n := slices.IndexFunc(stretch.recorded, func(r Stop) bool { return r.String() == s.String() })
			switch {
			case n < 0:
				mend = append(mend, fmt.Sprintf("%s names `%s`, which no event passes in the stretch %s. "+
					"Name the function that does it now: go test ./internal/walk -v prints all of them", Page, s, stretch.name))
				continue
			case n < at:
				mend = append(mend, fmt.Sprintf("%s has `%s` behind `%s`, and the events pass it before: move it up", Page, s, before))
				continue
			}
			before, at = s, n
		}
	}
	return mend
}
