package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// module is a module of the repository that is released.
type module struct {
	dir  string // within the repository, with slashes; "." is the root
	file *modfile.File
}

func (m *module) path() string { return m.file.Module.Mod.Path }

// tag is the name of the module's tag, for example messaging/nats/v0.1.0: https://go.dev/ref/mod#vcs-version.
func (m *module) tag(version string) string { return path.Join(m.dir, version) }

// own returns the paths of modules of this repository that the module requires.
func (m *module) own(all []*module) (paths []string) {
	for _, r := range m.file.Require {
		if slices.ContainsFunc(all, func(other *module) bool { return other.path() == r.Mod.Path }) {
			paths = append(paths, r.Mod.Path)
		}
	}
	return paths
}

// unreleased reports whether the module in a folder is never released: it is only built within this repository. Programs that measure, examples,
// tests of pages, and tools of this repository are such modules.
func unreleased(dir string) bool {
	for name := range strings.SplitSeq(dir, "/") {
		if slices.Contains([]string{"bench", "docs", "examples", "internal"}, name) || strings.HasSuffix(name, "test") {
			return true
		}
	}
	return false
}

// findModules returns the modules below root that are released. A module stands after the modules that it requires.
func findModules(root string) (all []*module, err error) {
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if base := entry.Name(); name != "." && (base == "testdata" || base[0] == '.' || base[0] == '_') {
				return fs.SkipDir // the go command ignores these folders, too
			}
			return nil
		case entry.Name() != "go.mod" || unreleased(path.Dir(name)):
			return nil
		}
		file, err := readModFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		all = append(all, &module{dir: path.Dir(name), file: file})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for modules: %w", err)
	}
	return requiredFirst(all)
}

// requiredFirst sorts modules: each stands after the modules that it requires.
func requiredFirst(all []*module) (sorted []*module, err error) {
	for len(sorted) < len(all) {
		before := len(sorted)
		for _, m := range all {
			if slices.Contains(sorted, m) {
				continue
			}
			missing := slices.DeleteFunc(m.own(all), func(p string) bool {
				return slices.ContainsFunc(sorted, func(s *module) bool { return s.path() == p })
			})
			if len(missing) == 0 {
				sorted = append(sorted, m)
			}
		}
		if len(sorted) == before {
			return nil, fmt.Errorf("modules require each other in a circle, %d of them; a release needs an order", len(all)-before)
		}
	}
	return sorted, nil
}

func readModFile(name string) (*modfile.File, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(name, text, nil)
}

// checkVersion refuses versions that cannot be released. tags are those of the repository.
func checkVersion(version string, all []*module, tags []string) error {
	if version != semver.Canonical(version) {
		return fmt.Errorf("version %q is not in the form v1.2.3", version)
	}
	for _, m := range all {
		if slices.Contains(tags, m.tag(version)) {
			return fmt.Errorf("version %s exists: there is a tag %s; a version is never released twice, choose a higher one", version, m.tag(version))
		}
		if err := modulePathMajor(m.path(), version); err != nil {
			return err
		}
	}
	return nil
}

// modulePathMajor refuses a major version that the path of the module does not have: https://go.dev/ref/mod#major-version-suffixes.
func modulePathMajor(modulePath, version string) error {
	major := semver.Major(version)
	if has := strings.HasSuffix(modulePath, "/"+major); (major == "v0" || major == "v1") == has {
		return fmt.Errorf("module %s cannot have version %s: from v2 on its path ends with the major version", modulePath, version)
	}
	return nil
}

// lastVersion returns the highest version that the module has a tag for and that is below another version, "" if there is none. An empty version is
// above all.
func lastVersion(m *module, version string, tags []string) (last string) {
	prefix := strings.TrimSuffix(m.tag("v"), "v")
	for _, tag := range tags {
		v, found := strings.CutPrefix(tag, prefix)
		if !found || !semver.IsValid(v) || version != "" && semver.Compare(v, version) >= 0 {
			continue
		}
		if last == "" || semver.Compare(v, last) > 0 {
			last = v
		}
	}
	return last
}

// nextMinor returns the version that is checked if nobody names one: the first release, or the next minor version.
func nextMinor(last string) string {
	if last == "" {
		return "v0.1.0"
	}
	var major, minor int
	if _, err := fmt.Sscanf(semver.MajorMinor(last), "v%d.%d", &major, &minor); err != nil {
		return last
	}
	return fmt.Sprintf("v%d.%d.0", major, minor+1)
}
