package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// platform is an operating system and a processor, in the names of the go command.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// here reports whether the programs of the platform run on this machine.
func (p platform) here() bool { return p == platform{runtime.GOOS, runtime.GOARCH} }

// binary is the command, built for a platform.
type binary struct {
	platform platform
	file     string
	info     *buildinfo.BuildInfo
}

// buildBinaries builds the command for each platform, twice: in the clone, and in another clone at another place, as a person who checks the release
// would. Both must have the same bytes.
func (r *rehearsal) buildBinaries(ctx context.Context) (string, error) {
	again, err := r.clone.cloneTo(ctx, filepath.Join(r.scratch, "elsewhere", "again"), r.root().tag(r.version))
	if err != nil {
		return "", err
	}
	for _, p := range r.platforms {
		name := fmt.Sprintf("%s_%s_%s_%s", r.name(), r.version, p.os, p.arch)
		if p.os == "windows" {
			name += ".exe"
		}
		b := &binary{platform: p, file: filepath.Join(r.dist, name)}
		if err := r.build(ctx, r.clone, p, b.file); err != nil {
			return "", err
		}
		second := filepath.Join(r.scratch, "again.bin")
		if err := r.build(ctx, again, p, second); err != nil {
			return "", err
		}
		if b.info, err = buildinfo.ReadFile(b.file); err != nil {
			return "", err
		}
		if err := r.checkInfo(b); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		if err := same(b.file, second); err != nil {
			return "", fmt.Errorf("%s is not reproducible: %w", name, err)
		}
		if p.here() {
			if err := r.showsVersion(ctx, b.file); err != nil {
				return "", err
			}
		}
		r.made.binaries = append(r.made.binaries, b)
	}
	return fmt.Sprintf("%d platforms, each built twice in different folders with the same bytes", len(r.platforms)), nil
}

// build builds the command. The go command itself writes the version and the commit into it, because the repository has the tag.
func (r *rehearsal) build(ctx context.Context, at repository, p platform, file string) error {
	_, err := goHere().with("GOOS="+p.os, "GOARCH="+p.arch).run(ctx, at.dir, "build",
		"-trimpath", "-buildvcs=true", "-mod=readonly", "-ldflags=-s -w", "-o", file, "./"+r.command())
	return err
}

// checkInfo compares what the binary says about itself with the release.
func (r *rehearsal) checkInfo(b *binary) error {
	var all []error
	if b.info.Main.Version != r.version {
		all = append(all, fmt.Errorf("it says that it is version %s, and not %s", b.info.Main.Version, r.version))
	}
	for _, s := range b.info.Settings {
		if s.Key == "vcs.modified" && s.Value != "false" {
			all = append(all, errors.New("it says that it was built with files that are not committed"))
		}
	}
	for _, d := range b.info.Deps {
		if d.Replace != nil {
			all = append(all, fmt.Errorf("it has %s in place of %s", d.Replace.Path, d.Path))
		}
	}
	return errors.Join(all...)
}

// same compares two files.
func same(one, other string) error {
	a, err := os.ReadFile(one)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(other)
	if err != nil {
		return err
	}
	if bytes.Equal(a, b) {
		return nil
	}
	at := 0
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	return fmt.Errorf("built in two folders, it has %d and %d bytes, and differs from byte %d on", len(a), len(b), at)
}
