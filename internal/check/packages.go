package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
)

const (
	everything = "./..."
	modulePath = "github.com/oncebox/oncebox"
	// serversOf is the package on which every test with a server depends.
	serversOf = modulePath + "/internal/devenv"
)

// pkg is a package of this module, as go list describes it.
type pkg struct {
	ImportPath   string   `json:"ImportPath"`
	Imports      []string `json:"Imports"`
	TestImports  []string `json:"TestImports"`
	XTestImports []string `json:"XTestImports"`
	TestGoFiles  []string `json:"TestGoFiles"`
	XTestGoFiles []string `json:"XTestGoFiles"`
}

func listPackages(ctx context.Context) ([]pkg, error) {
	list := exec.CommandContext(ctx, "go", "list", "-json=ImportPath,Imports,TestImports,XTestImports,TestGoFiles,XTestGoFiles", everything)
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w%s", err, said(err))
	}
	var all []pkg
	for read := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := read.Decode(&p)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read what go list says: %w", err)
		}
		all = append(all, p)
	}
}

// changedFiles returns the files that have changed since this branch left base, and the files that git does
// not track yet.
func changedFiles(ctx context.Context, base string) (files []string, err error) {
	for _, args := range [][]string{
		{"diff", "--name-only", "--merge-base", base}, {"ls-files", "--others", "--exclude-standard"},
	} {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		if err != nil {
			return nil, fmt.Errorf("git %s: %w%s", strings.Join(args, " "), err, said(err))
		}
		files = append(files, strings.Fields(string(out))...)
	}
	return files, nil
}

// said returns what a program wrote to stderr before it failed.
func said(err error) string {
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return "\n" + string(failed.Stderr)
	}
	return ""
}

// changedPackages returns the packages with a changed file in their folder or in their testdata.
func changedPackages(all []pkg, files []string) (changed []pkg) {
	for _, p := range all {
		dir := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, modulePath), "/")
		if slices.ContainsFunc(files, func(file string) bool {
			in, _, _ := strings.Cut(path.Dir(file), "/testdata")
			return in == dir || in == "." && dir == "" && path.Ext(file) == ".go"
		}) {
			changed = append(changed, p)
		}
	}
	return changed
}

// needServers returns the packages whose tests need a server.
func needServers(all, of []pkg) (names []string) {
	uses := users(all)
	for _, p := range of {
		if p.hasTests() && uses.inTests(p) {
			names = append(names, p.ImportPath)
		}
	}
	return names
}

func withoutServers(all []pkg) (names []string) {
	uses := users(all)
	for _, p := range all {
		if p.hasTests() && !uses.inTests(p) {
			names = append(names, p.ImportPath)
		}
	}
	return names
}

func (p pkg) hasTests() bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 }

// dependents is the set of packages that depend on serversOf.
type dependents map[string]bool

func users(all []pkg) dependents {
	uses := dependents{serversOf: true}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if !uses[p.ImportPath] && slices.ContainsFunc(p.Imports, uses.has) {
				uses[p.ImportPath], grown = true, true
			}
		}
	}
	return uses
}

func (d dependents) has(name string) bool { return d[name] }

func (d dependents) inTests(p pkg) bool {
	return d[p.ImportPath] || slices.ContainsFunc(p.TestImports, d.has) || slices.ContainsFunc(p.XTestImports, d.has)
}
