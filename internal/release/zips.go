package main

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/licensecheck"
	"golang.org/x/mod/modfile"
)

// The limits of a module. It is source, so a file above the limit is there by mistake.
const (
	largestFile   = 512 << 10
	largestModule = 16 << 20
)

// zips downloads each module from its tag and looks at what a user gets.
func (r *rehearsal) zips(ctx context.Context) (string, error) {
	from := r.goFrom(filepath.Join(r.scratch, "released"))
	var all []error
	var sizes []string
	for _, m := range r.modules {
		d, err := from.download(ctx, m.path(), r.version)
		if err != nil {
			return "", err
		}
		archive, err := zip.OpenReader(d.Zip)
		if err != nil {
			return "", err
		}
		size, err := checkZip(&archive.Reader, m.path()+"@"+r.version+"/")
		if err = errors.Join(err, archive.Close()); err != nil {
			all = append(all, fmt.Errorf("module %s: %w", m.path(), err))
		}
		sizes = append(sizes, fmt.Sprintf("%s %d KiB", m.dir, size>>10))
		file, err := r.fileOf(m)
		if err != nil {
			return "", err
		}
		if err := r.checkModFile(file, m); err != nil {
			all = append(all, fmt.Errorf("module %s: %w", m.path(), err))
		}
	}
	return strings.Join(sizes, ", "), errors.Join(all...)
}

// checkZip looks for a licence that pkg.go.dev knows, and for files that are too large. It returns the size of all files.
func checkZip(archive *zip.Reader, prefix string) (size uint64, err error) {
	var all []error
	licensed := false
	for _, f := range archive.File {
		name := strings.TrimPrefix(f.Name, prefix)
		size += f.UncompressedSize64
		if f.UncompressedSize64 > largestFile {
			all = append(all, fmt.Errorf("%s has %d bytes, and a file of a module has at most %d", name, f.UncompressedSize64, largestFile))
		}
		if name == "LICENSE" {
			text, err := readZipped(f)
			if err != nil {
				return 0, err
			}
			licensed = len(kindsOf(text)) > 0
		}
	}
	if size > largestModule {
		all = append(all, fmt.Errorf("its files have %d KiB, and a module has at most %d", size>>10, largestModule>>10))
	}
	if !licensed {
		all = append(all, errors.New("it has no file LICENSE with a licence that is known, so pkg.go.dev would not show its documentation"))
	}
	return size, errors.Join(all...)
}

func readZipped(f *zip.File) ([]byte, error) {
	from, err := f.Open()
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(from)
	return text, errors.Join(err, from.Close())
}

// kindsOf returns the SPDX identifiers of the licences in a text, sorted; none if most of the text is something else.
func kindsOf(text []byte) (kinds []string) {
	found := licensecheck.Scan(text)
	if found.Percent < 75 { // the threshold of pkg.go.dev
		return nil
	}
	for _, match := range found.Match {
		if !slices.Contains(kinds, match.ID) {
			kinds = append(kinds, match.ID)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// checkModFile looks for lines of go.mod that are fine in this repository and a fault for users.
func (r *rehearsal) checkModFile(file *modfile.File, m *module) error {
	var all []error
	for _, line := range file.Replace {
		all = append(all, fmt.Errorf("go.mod replaces %s: users do not get the replacement, and go install refuses the module", line.Old.Path))
	}
	for _, line := range file.Exclude {
		all = append(all, fmt.Errorf("go.mod excludes %s: go install refuses the module", line.Mod))
	}
	for _, line := range file.Require {
		if own := strings.HasPrefix(line.Mod.Path+"/", r.root().path()+"/"); own && line.Mod.Version != r.version {
			all = append(all, fmt.Errorf("go.mod requires %s, which is not released: move what %s needs of it to a released module", line.Mod, m.path()))
		}
	}
	return errors.Join(all...)
}
