package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

// licence is what a module says about its use.
type licence struct {
	version string
	kinds   []string // SPDX identifiers
	texts   []string // the files with the licence, and with the notices that have to go along
}

// accepted are the licences that allow everyone to give away a binary with the code, as long as their text goes along.
//
//nolint:gochecknoglobals // a constant
var accepted = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "MPL-2.0", "Unlicense", "Zlib"}

// ofLicence matches the names of files that hold a licence or a notice.
var ofLicence = regexp.MustCompile(`(?i)^((un)?licen[sc]e|copying|notice)([.-].*)?$`)

// thirdParty is the file with the licences of all modules in the binaries.
const thirdParty = "THIRD_PARTY_LICENSES"

// checkLicences reads the licence of each module in the binaries, and of Go itself, and writes all of them into one file.
func (r *rehearsal) checkLicences(ctx context.Context) (string, error) {
	modules := map[string]*debug.Module{}
	for _, b := range r.made.binaries {
		for _, m := range b.info.Deps {
			modules[m.Path] = m
		}
	}
	folders, err := r.folders(ctx, slices.Collect(maps.Values(modules)))
	if err != nil {
		return "", err
	}
	var all []error
	kinds := map[string]int{}
	r.made.licences = map[string]*licence{}
	for path, dir := range folders {
		l, err := readLicence(dir)
		if err != nil {
			all = append(all, fmt.Errorf("%s: %w", path, err))
			continue
		}
		if m := modules[path]; m != nil {
			l.version = m.Version
		}
		r.made.licences[path] = l
		for _, kind := range l.kinds {
			kinds[kind]++
		}
	}
	var shown []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		shown = append(shown, fmt.Sprintf("%s %d", kind, kinds[kind]))
	}
	all = append(all, os.WriteFile(filepath.Join(r.dist, thirdParty), r.allLicences(), 0o644))
	return fmt.Sprintf("%d modules: %s", len(modules), strings.Join(shown, ", ")), errors.Join(all...)
}

// isOwn reports whether a module belongs to the repository. Its licence is that of the repository.
func (r *rehearsal) isOwn(path string) bool {
	return slices.ContainsFunc(r.modules, func(m *module) bool { return m.path() == path })
}

// goItself stands for the standard library, whose code is in each binary.
const goItself = "The Go programming language"

// folders returns the folders with the source of modules, by path.
func (r *rehearsal) folders(ctx context.Context, modules []*debug.Module) (map[string]string, error) {
	root, err := goHere().run(ctx, "", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	folders := map[string]string{goItself: strings.TrimSpace(string(root))}
	args := []string{"mod", "download", "-json"}
	for _, m := range modules {
		if r.isOwn(m.Path) {
			folders[m.Path] = r.clone.dir
			continue
		}
		args = append(args, m.Path+"@"+m.Version)
	}
	if len(args) == 3 { // go would download what the module of the folder requires
		return folders, nil
	}
	out, err := goHere().run(ctx, r.clone.dir, args...)
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var m downloaded
		if err := d.Decode(&m); err != nil {
			return nil, fmt.Errorf("read what go mod download prints: %w", err)
		}
		folders[m.Path] = m.Dir
	}
	return folders, nil
}

// readLicence reads the files in a folder that hold a licence or a notice. There must be a licence, and all must be accepted.
func readLicence(dir string) (*licence, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	l := &licence{}
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !ofLicence.MatchString(entry.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		l.texts = append(l.texts, string(text))
		for _, kind := range kindsOf(text) {
			if !slices.Contains(accepted, kind) {
				return nil, fmt.Errorf("its licence is %s, which is not among the accepted ones: %s", kind, strings.Join(accepted, ", "))
			}
			if !slices.Contains(l.kinds, kind) {
				l.kinds = append(l.kinds, kind)
			}
		}
	}
	if len(l.kinds) == 0 {
		return nil, errors.New("it has no licence that is known: read what it allows, and use another module if it allows nothing")
	}
	return l, nil
}

// allLicences is the text of the file with all licences.
func (r *rehearsal) allLicences() []byte {
	var text bytes.Buffer
	for _, path := range slices.Sorted(maps.Keys(r.made.licences)) {
		if r.isOwn(path) {
			continue
		}
		l := r.made.licences[path]
		line := strings.Repeat("=", 80)
		title := strings.Join(append([]string{strings.TrimSpace(path + " " + l.version)}, l.kinds...), ", ")
		fmt.Fprintf(&text, "%s\n%s\n%s\n\n", line, title, line)
		for _, t := range l.texts {
			text.WriteString(strings.TrimSpace(strings.ReplaceAll(t, "\r\n", "\n")) + "\n\n")
		}
	}
	return text.Bytes()
}
