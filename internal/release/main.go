// Command release makes a release in a clone of the repository and checks it as its users would meet it:
//
//	go run -C internal/release .                           # make release-check
//	go run -C internal/release . -version v0.2.0
//	go run -C internal/release . -version v0.2.0 -keep     # make release VERSION=v0.2.0
//
// Nothing in the repository changes. With -keep, if nothing failed and nothing was skipped, the tags come from the clone into the repository: what is
// released is what was checked. docs/releasing.md says what each step checks. The files of the release are in the folder dist, and the last line is
//
//	release-check version=v0.2.0 modules=6 binaries=20 images=4 image=sha256:… sbom=20 failed=0
//
// image is that of the product, and failed is the number of steps that failed. The exit code is 1 if there is one.
//
// Read first: main.go, then rehearsal.go.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	version := flag.String("version", "", "the version to release, for example v0.2.0; by default the next minor version")
	keep := flag.Bool("keep", false, "set the tags of the release in the repository if nothing failed and nothing was skipped")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *version, *keep)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// errFailed ends a run whose failures were all reported already.
var errFailed = errors.New("it cannot be released, see above")

func run(ctx context.Context, out io.Writer, version string, keep bool) (err error) {
	source, err := open(ctx, ".")
	if err != nil {
		return err
	}
	s := settings{dist: filepath.Join(source.dir, "dist"), platforms: []platform{
		{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"},
	}}
	return release(ctx, out, source, s, version, keep)
}

// release makes and checks a release of source.
func release(ctx context.Context, out io.Writer, source repository, s settings, version string, keep bool) (err error) {
	scratch, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	if err := errors.Join(os.RemoveAll(s.dist), os.MkdirAll(s.dist, 0o755)); err != nil {
		return err
	}
	r := &rehearsal{settings: s, version: version, source: source, scratch: scratch}
	failed, skipped := runSteps(ctx, out, r.steps())
	if keep {
		last := step{what: "tags", do: r.keep}
		if failed+skipped > 0 {
			last.do = func(context.Context) (string, error) {
				return "", errors.New("they are not set, because a step failed or was skipped")
			}
		}
		more, _ := runSteps(ctx, out, []step{last})
		failed += more
	}
	image := "none"
	if len(r.made.images) > 0 {
		image = r.made.images[0]
	}
	fmt.Fprintf(out, "release-check version=%s modules=%d binaries=%d images=%d image=%s sbom=%d failed=%d\n",
		r.version, len(r.modules), len(r.made.binaries), len(r.made.images), image, r.made.sboms, failed)
	if failed > 0 {
		return errFailed
	}
	return nil
}

// step is a part of the check.
type step struct {
	what  string
	needs bool // later steps need what it makes: they are not run if it fails
	do    func(context.Context) (string, error)
}

func (r *rehearsal) steps() []step {
	return []step{
		{"source", true, r.inspect},
		{"commit", true, r.commit},
		{"zips", false, r.zips},
		{"users", false, r.buildPrograms},
		{"api", false, r.compareAPI},
		{"binaries", true, r.buildBinaries},
		{"licences", false, r.checkLicences},
		{"sbom", false, r.listBinaries},
		{"images", false, r.buildImages},
		{"vulnerabilities", false, r.checkVulnerabilities},
		{"checksums", false, r.sumFiles},
	}
}

// runSteps runs steps, reports each, and returns how many failed and how many could not be done on this machine.
func runSteps(ctx context.Context, out io.Writer, steps []step) (failed, skipped int) {
	for _, s := range steps {
		begun := time.Now()
		said, err := s.do(ctx)
		took := time.Since(begun).Round(100 * time.Millisecond)
		switch {
		case errors.Is(err, errSkipped):
			skipped++
			fmt.Fprintf(out, "skip  %-16s %6s  %v\n", s.what, took, err)
		case err != nil:
			failed++
			fmt.Fprintf(out, "FAIL  %-16s %6s  %s\n", s.what, took, strings.ReplaceAll(err.Error(), "\n", "\n      "))
			if s.needs || ctx.Err() != nil {
				return failed, skipped
			}
		default:
			fmt.Fprintf(out, "ok    %-16s %6s  %s\n", s.what, took, said)
		}
	}
	return failed, skipped
}

// sumFiles writes the checksums of all files in dist, in the form that sha256sum -c reads.
func (r *rehearsal) sumFiles(context.Context) (string, error) {
	files, err := filesBelow(r.dist)
	if err != nil {
		return "", err
	}
	slices.SortFunc(files, func(a, b imageFile) int { return strings.Compare(a.name, b.name) })
	var lines []string
	for _, f := range files {
		lines = append(lines, fmt.Sprintf("%x  %s", sha256.Sum256(f.text), f.name))
	}
	return fmt.Sprintf("%d files in %s", len(files)+1, r.dist), writeLines(filepath.Join(r.dist, "SHA256SUMS"), lines)
}
