package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
)

// aProgram is the program of a user. It contains all public packages of a module, and prints the versions that it was built with.
//
//nolint:gochecknoglobals // a constant
var aProgram = template.Must(template.New("main.go").Parse(`package main

import (
	"fmt"
	"runtime/debug"
{{range .}}
	_ "{{.}}"{{end}}
)

func main() {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		fmt.Println(module.Path, module.Version)
	}
}
`))

// buildPrograms is what a stranger does first: a new module requires a released module, is built, and runs. The commands of a module are installed.
func (r *rehearsal) buildPrograms(ctx context.Context) (string, error) {
	g, err := r.goOfStranger(ctx)
	if err != nil {
		return "", err
	}
	installed := 0
	for n, m := range r.modules {
		dir := filepath.Join(r.scratch, fmt.Sprintf("user%d", n))
		if err := r.program(ctx, g, m, dir); err != nil {
			return "", fmt.Errorf("a new module that requires %s: %w", m.path(), err)
		}
		count, err := r.install(ctx, g, m, dir)
		if err != nil {
			return "", fmt.Errorf("install the commands of %s: %w", m.path(), err)
		}
		installed += count
		// go.mod and go.sum in the tag fit, so a person who has only the tag can build it.
		if _, err := g.with("GOFLAGS=-trimpath -mod=readonly").run(ctx, filepath.Join(r.clone.dir, m.dir), "list", "-deps", "./..."); err != nil {
			return "", fmt.Errorf("module %s in its tag: %w", m.path(), err)
		}
	}
	return fmt.Sprintf("%d programs, %d commands installed", len(r.made.programs), installed), nil
}

// program makes, builds and runs a program of a user in the folder dir.
func (r *rehearsal) program(ctx context.Context, g goCommand, m *module, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for _, args := range [][]string{{"mod", "init", "example.com/user"}, {"get", m.path() + "@" + r.version}} {
		if _, err := g.run(ctx, dir, args...); err != nil {
			return err
		}
	}
	packages, err := r.packages(ctx, g, m, dir)
	if err != nil {
		return err
	}
	packages = slices.DeleteFunc(packages, func(p string) bool { return strings.HasPrefix(p, "main ") })
	for i, p := range packages {
		_, packages[i], _ = strings.Cut(p, " ")
	}
	var text bytes.Buffer
	if err := aProgram.Execute(&text, packages); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), text.Bytes(), 0o600); err != nil {
		return err
	}
	program := filepath.Join(dir, "user")
	if _, err := g.run(ctx, dir, "build", "-o", program); err != nil {
		return err
	}
	out, err := output(ctx, dir, nil, program)
	if err != nil {
		return err
	}
	if want := m.path() + " " + r.version + "\n"; len(packages) > 0 && !strings.Contains(string(out), want) {
		return fmt.Errorf("it runs, and does not have %s in its build information:\n%s", strings.TrimSpace(want), out)
	}
	r.made.programs = append(r.made.programs, program)
	return nil
}

// packages lists the packages of a module that others may use, each as its name and its path. Folders of a module that are there to be read are
// left out.
func (r *rehearsal) packages(ctx context.Context, g goCommand, m *module, dir string) (all []string, err error) {
	out, err := g.run(ctx, dir, "list", "-f", "{{with .Module}}{{.Path}}{{end}} {{$.Name}} {{$.ImportPath}}", m.path()+"/...")
	for line := range strings.Lines(string(out)) {
		of, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		_, path, _ := strings.Cut(rest, " ")
		if of == m.path() && !hidden(strings.TrimPrefix(path, m.path())) {
			all = append(all, rest)
		}
	}
	return all, err
}

// hidden reports whether a folder of a module has no package for others.
func hidden(dir string) bool {
	return slices.ContainsFunc(strings.Split(dir, "/"), func(name string) bool { return name == "internal" || name == "examples" || name == "docs" })
}

// install installs each command of a module, as go install does with the version at its end. That works only with a go.mod without replacements.
func (r *rehearsal) install(ctx context.Context, g goCommand, m *module, dir string) (count int, err error) {
	packages, err := r.packages(ctx, g, m, dir)
	if err != nil {
		return 0, err
	}
	bin := filepath.Join(dir, "bin")
	for _, p := range packages {
		path, isMain := strings.CutPrefix(p, "main ")
		if !isMain || !strings.Contains(path, "/cmd/") {
			continue
		}
		if _, err := g.with("GOBIN="+bin, "GOFLAGS=-trimpath -modcacherw").run(ctx, dir, "install", path+"@"+r.version); err != nil {
			return 0, err
		}
		count++
		of := slices.IndexFunc(r.commands, func(c *command) bool { return c.path() == path })
		if of < 0 {
			continue
		}
		if err := r.showsVersion(ctx, r.commands[of], filepath.Join(bin, filepath.Base(path))); err != nil {
			return 0, err
		}
	}
	return count, nil
}
