package main

import (
	"context"
	"errors"
	"fmt"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/mod/semver"
	"golang.org/x/tools/go/packages"
)

// compareAPI writes the public names of each module into a file, for a reviewer, and compares them with those of the module's last tag. The tag is
// the record: nothing else stores the API of a version. A change that breaks programs has to stand in the changelog, and no patch version has any.
func (r *rehearsal) compareAPI(ctx context.Context) (string, error) {
	g, err := r.goOfStranger(ctx)
	if err != nil {
		return "", err
	}
	here := g.with("GOFLAGS=-trimpath -mod=readonly") // the clone must not change any more
	var all []error
	var shown []string
	for _, m := range r.modules {
		now, err := load(ctx, here, m.path(), filepath.Join(r.clone.dir, m.dir))
		if err != nil {
			return "", err
		}
		names := publicNames(now)
		file := filepath.Join(r.dist, "api", strings.ReplaceAll(strings.Trim(m.dir, "."), "/", "_")+".txt")
		if m.dir == "." {
			file = filepath.Join(r.dist, "api", r.name()+".txt")
		}
		if err := writeLines(file, names); err != nil {
			return "", err
		}
		last := lastVersion(m, r.version, r.tags)
		if last == "" {
			shown = append(shown, fmt.Sprintf("%s: %d names, none released before", m.dir, len(names)))
			continue
		}
		old, err := r.loadTag(ctx, g, m, last)
		if err != nil {
			return "", err
		}
		report := apidiff.ModuleChanges(old, now)
		broken := breaks(report)
		shown = append(shown, fmt.Sprintf("%s: %d names, %d changes since %s, %d of them break programs",
			m.dir, len(names), len(report.Changes), last, len(broken)))
		all = append(all, checkBreaks(broken, breaking(r.news), m, r.version, last))
	}
	return strings.Join(shown, "; "), errors.Join(all...)
}

func breaks(report apidiff.Report) (messages []string) {
	for _, c := range report.Changes {
		if !c.Compatible {
			messages = append(messages, c.Message)
		}
	}
	return messages
}

// checkBreaks refuses changes that break programs and that no user reads about.
func checkBreaks(broken []string, entries string, m *module, version, last string) error {
	patch := semver.MajorMinor(version) == semver.MajorMinor(last)
	stable := semver.Major(version) != "v0" && semver.Major(version) == semver.Major(last)
	var all []error
	for _, message := range broken {
		var why string
		switch name := subject(message); {
		case patch:
			why = "a patch version breaks no program: release the next minor version, or take it back"
		case stable:
			why = "from v1 on only a new major version breaks programs"
		case !strings.Contains(entries, name):
			why = "this breaks programs; say in CHANGELOG.md, below Changed or Removed, what users write in place of `" + name + "`"
		default:
			continue
		}
		all = append(all, fmt.Errorf("module %s: %s: %s", m.path(), message, why))
	}
	return errors.Join(all...)
}

// subject returns the name in a message of apidiff, without its package: "./uow.Manager.Do: changed from …" is about Manager.Do. A message about a
// whole package is about its path.
func subject(message string) string {
	name, _, _ := strings.Cut(message, ": ")
	name = strings.TrimPrefix(name, "package ")
	last := name[strings.LastIndex(name, "/")+1:]
	if _, after, found := strings.Cut(last, "."); found && after != "" {
		return after
	}
	return name
}

// loadTag loads a module as it was at its tag. Modules of the repository that it requires are those of the same commit.
func (r *rehearsal) loadTag(ctx context.Context, g goCommand, m *module, version string) (*apidiff.Module, error) {
	dir := filepath.Join(r.scratch, "old", strings.ReplaceAll(m.tag(version), "/", "_"))
	if _, err := r.source.cloneTo(ctx, dir, "refs/tags/"+m.tag(version)); err != nil {
		return nil, err
	}
	then, err := findModules(dir)
	if err != nil {
		return nil, err
	}
	name := filepath.Join(dir, m.dir, "go.mod")
	file, err := readModFile(name)
	if err != nil {
		return nil, err
	}
	for _, other := range then {
		if err := file.AddReplace(other.path(), "", filepath.Join(dir, other.dir), ""); err != nil {
			return nil, err
		}
	}
	text, err := file.Format()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(name, text, 0o600); err != nil {
		return nil, err
	}
	return load(ctx, g, m.path(), filepath.Join(dir, m.dir))
}

// load loads the public packages of the module in a folder.
func load(ctx context.Context, g goCommand, modulePath, dir string) (*apidiff.Module, error) {
	cfg := &packages.Config{
		Context: ctx, Dir: dir, Env: append(os.Environ(), g.env...),
		Mode: packages.NeedName | packages.NeedTypes | packages.NeedModule | packages.NeedImports,
	}
	loaded, err := packages.Load(cfg, "./...")
	if err != nil {
		return nil, fmt.Errorf("load module %s: %w", modulePath, err)
	}
	m := &apidiff.Module{Path: modulePath}
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			return nil, fmt.Errorf("load module %s: %w", modulePath, p.Errors[0])
		}
		if p.Name != "main" && !hidden(strings.TrimPrefix(p.PkgPath, modulePath)) {
			m.Packages = append(m.Packages, p.Types)
		}
	}
	return m, nil
}

// publicNames lists all names of a module that programs can use, each with its package and its type, one a line, sorted.
func publicNames(m *apidiff.Module) (lines []string) {
	for _, p := range m.Packages {
		for _, name := range p.Scope().Names() {
			if o := p.Scope().Lookup(name); o.Exported() {
				for _, l := range namesOf(o, types.RelativeTo(p)) {
					lines = append(lines, p.Path()+": "+l)
				}
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// namesOf returns the lines of a name: more than one for a type, whose fields and methods are names too.
func namesOf(o types.Object, qualifier types.Qualifier) []string {
	named, isNamed := o.Type().(*types.Named)
	if _, isType := o.(*types.TypeName); !isType || !isNamed || named.Obj() != o {
		return []string{types.ObjectString(o, qualifier)}
	}
	lines := []string{"type " + o.Name() + " " + kindOf(named, qualifier)}
	if s, isStruct := named.Underlying().(*types.Struct); isStruct {
		for f := range s.Fields() {
			if f.Exported() {
				lines = append(lines, "field "+o.Name()+"."+f.Name()+" "+types.TypeString(f.Type(), qualifier))
			}
		}
	}
	var receiver types.Type = types.NewPointer(named)
	if types.IsInterface(named) {
		receiver = named
	}
	for method := range types.NewMethodSet(receiver).Methods() {
		if m := method.Obj(); m.Exported() {
			lines = append(lines, "method "+o.Name()+"."+m.Name()+strings.TrimPrefix(types.TypeString(method.Type(), qualifier), "func"))
		}
	}
	return lines
}

// kindOf is the word for the underlying type, whose parts stand on lines of their own.
func kindOf(named *types.Named, qualifier types.Qualifier) string {
	switch u := named.Underlying().(type) {
	case *types.Struct:
		return "struct"
	case *types.Interface:
		return "interface"
	default:
		return types.TypeString(u, qualifier)
	}
}

func writeLines(file string, lines []string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}
