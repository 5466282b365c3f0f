package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
)

// rehearsal is a release that is made in a clone of the repository: with its commits, its tags and its files. What it makes can be released as it is.
type rehearsal struct {
	settings
	version  string
	source   repository // where the release comes from
	tags     []string   // of the source
	scratch  string     // a folder that is removed at the end
	clone    repository
	when     time.Time // of the last commit of the source
	modules  []*module
	commands []*command
	news     string // what the changelog says about the release
	made     madeFiles
}

// settings differ between the repository and the small ones of tests.
type settings struct {
	dist      string     // the folder for files
	platforms []platform // of the binaries
}

// madeFiles are what steps leave for later steps.
type madeFiles struct {
	binaries []*binary
	programs []string // of package main, one for each module: they contain all public packages
	images   []string // the digests of the images, that of the product first
	sboms    int
	licences map[string]*licence // of the modules in the binaries, by path
}

// inspect finds the modules and the version, and refuses what cannot be released.
func (r *rehearsal) inspect(ctx context.Context) (string, error) {
	open, err := r.source.lines(ctx, "status", "--porcelain")
	if err != nil {
		return "", err
	}
	if len(open) > 0 {
		return "", fmt.Errorf("these files are not committed, and a release has only what is committed; commit or remove them:\n%s", strings.Join(open, "\n"))
	}
	if r.tags, err = r.source.lines(ctx, "tag", "--list"); err != nil {
		return "", err
	}
	if r.modules, err = findModules(r.source.dir); err != nil {
		return "", err
	}
	r.commands = r.findCommands()
	if r.version == "" {
		r.version = nextMinor(lastVersion(r.root(), "", r.tags))
	}
	if err := checkVersion(r.version, r.modules, r.tags); err != nil {
		return "", err
	}
	notes := filepath.Join("docs", "releases", r.version+".md")
	if _, err := os.Stat(filepath.Join(r.source.dir, notes)); err != nil {
		return "", fmt.Errorf("%s has no notes: write %s", r.version, notes)
	}
	var paths []string
	for _, m := range r.modules {
		paths = append(paths, m.dir)
	}
	return fmt.Sprintf("%s of %s", r.version, strings.Join(paths, ", ")), nil
}

// root returns the module in the folder of the repository.
func (r *rehearsal) root() *module {
	i := slices.IndexFunc(r.modules, func(m *module) bool { return m.dir == "." })
	return r.modules[i]
}

// name is the name of the product.
func (r *rehearsal) name() string { return filepath.Base(r.root().path()) }

// commit makes the two commits of the release in the clone, and its tags. The first one can go on to the main branch: it closes the changelog. The
// second one is only for the tags: in it no module replaces another one by a folder, and each requires the version that is released.
func (r *rehearsal) commit(ctx context.Context) (_ string, err error) {
	head, err := r.source.run(ctx, "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	if r.clone, err = r.source.cloneTo(ctx, filepath.Join(r.scratch, "clone"), head); err != nil {
		return "", err
	}
	if r.clone, r.when, err = r.clone.asLastCommit(ctx); err != nil {
		return "", err
	}
	name := filepath.Join(r.clone.dir, "CHANGELOG.md")
	text, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	if r.news, err = unreleasedSection(string(text)); err != nil {
		return "", err
	}
	closed, err := closeUnreleased(string(text), r.version, r.when)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(name, []byte(closed), 0o600); err != nil {
		return "", err
	}
	if _, err := r.clone.run(ctx, "commit", "--quiet", "--all", "--message", "changelog: "+r.version); err != nil {
		return "", err
	}
	for _, m := range r.modules {
		if err := r.requireRelease(m); err != nil {
			return "", err
		}
	}
	// Two modules may need no other one: then the second commit is empty, and the tags stand on it all the same.
	message := "go.mod: modules require " + r.version + " of each other"
	if _, err := r.clone.run(ctx, "commit", "--quiet", "--all", "--allow-empty", "--message", message); err != nil {
		return "", err
	}
	if err := r.sum(ctx); err != nil {
		return "", err
	}
	hash, err := r.clone.run(ctx, "rev-parse", "HEAD")
	return fmt.Sprintf("%s is commit %.12s", r.root().tag(r.version), hash), err
}

// requireRelease changes the go.mod of a module in the clone: it requires other modules of this repository at the version, and replaces none.
func (r *rehearsal) requireRelease(m *module) error {
	for _, own := range m.own(r.modules) {
		if err := m.file.AddRequire(own, r.version); err != nil {
			return err
		}
	}
	for _, other := range r.modules {
		if err := m.file.DropReplace(other.path(), ""); err != nil {
			return err
		}
	}
	m.file.Cleanup()
	text, err := m.file.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.clone.dir, m.dir, "go.mod"), text, 0o600)
}

// sum adds the checksums of required modules of this repository to each go.sum, and sets the tags. A checksum is known when the module has a tag,
// so the modules come one after the other. A module does not contain the go.sum of another one, so its checksum stays.
func (r *rehearsal) sum(ctx context.Context) error {
	sums := map[string]string{} // the two lines of a module in go.sum, by path
	first := r.goFrom(filepath.Join(r.scratch, "sums"))
	for _, m := range r.modules {
		if own := m.own(r.modules); len(own) > 0 {
			if err := r.addSums(ctx, m, own, sums); err != nil {
				return err
			}
		}
		if err := r.tag(ctx, m); err != nil {
			return err
		}
		if !slices.ContainsFunc(r.modules, func(other *module) bool { return slices.Contains(other.own(r.modules), m.path()) }) {
			continue
		}
		d, err := first.download(ctx, m.path(), r.version)
		if err != nil {
			return err
		}
		sums[m.path()] = fmt.Sprintf("%s %s %s\n%s %s/go.mod %s\n", m.path(), r.version, d.Sum, m.path(), r.version, d.GoModSum)
	}
	for _, m := range r.modules { // the commit was amended since
		if err := r.tag(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// addSums adds the checksums of some modules to the go.sum of a module, and to the commit.
func (r *rehearsal) addSums(ctx context.Context, m *module, own []string, sums map[string]string) error {
	name := filepath.Join(r.clone.dir, m.dir, "go.sum")
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, other := range own {
		text = append(text, sums[other]...)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	slices.SortFunc(lines, bytes.Compare)
	if err := os.WriteFile(name, bytes.Join(lines, nil), 0o600); err != nil {
		return err
	}
	if _, err := r.clone.run(ctx, "add", "--all"); err != nil {
		return err
	}
	_, err = r.clone.run(ctx, "commit", "--quiet", "--amend", "--no-edit", "--allow-empty")
	return err
}

func (r *rehearsal) tag(ctx context.Context, m *module) error {
	_, err := r.clone.run(ctx, "tag", "--annotate", "--force", "--message", m.path()+" "+r.version, m.tag(r.version))
	return err
}

// keep brings the tags of the release, and with them its commits, into the source.
func (r *rehearsal) keep(ctx context.Context) (string, error) {
	args := []string{"fetch", "--quiet", "--no-tags", r.clone.dir}
	var names []string
	for _, m := range r.modules {
		names = append(names, m.tag(r.version))
		args = append(args, "refs/tags/"+m.tag(r.version)+":refs/tags/"+m.tag(r.version))
	}
	if _, err := r.source.run(ctx, args...); err != nil {
		return "", err
	}
	return fmt.Sprintf("the tags are set; now:\n  git merge --ff-only %s~1\n  git push --atomic origin HEAD %s",
		r.root().tag(r.version), strings.Join(names, " ")), nil
}

// fileOf reads the go.mod of a module as it is in the clone.
func (r *rehearsal) fileOf(m *module) (*modfile.File, error) {
	return readModFile(filepath.Join(r.clone.dir, m.dir, "go.mod"))
}

// downloaded is what go mod download prints about a module: https://go.dev/ref/mod#go-mod-download.
type downloaded struct {
	Path     string `json:"Path"`
	Error    string `json:"Error"`
	Zip      string `json:"Zip"` // a file
	Dir      string `json:"Dir"` // the folder with its files
	Sum      string `json:"Sum"`
	GoModSum string `json:"GoModSum"`
}

// download fetches a module in the way of the go command.
func (g goCommand) download(ctx context.Context, modulePath, version string) (d downloaded, err error) {
	out, err := g.run(ctx, "", "mod", "download", "-json", modulePath+"@"+version)
	if jsonErr := json.Unmarshal(out, &d); jsonErr == nil && d.Error != "" {
		return d, fmt.Errorf("go mod download: %s", d.Error)
	}
	return d, err
}
