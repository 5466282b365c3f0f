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

// binary is a command, built for a platform.
type binary struct {
	command  *command
	platform platform
	file     string
	info     *buildinfo.BuildInfo
}

// buildBinaries builds each command for each platform, twice: in the clone, and in another clone at another place, as a person who checks the release
// would. Both must have the same bytes.
func (r *rehearsal) buildBinaries(ctx context.Context) (string, error) {
	again, err := r.clone.cloneTo(ctx, filepath.Join(r.scratch, "elsewhere", "again"), r.root().tag(r.version))
	if err != nil {
		return "", err
	}
	for _, c := range r.commands {
		for _, p := range r.platforms {
			b, err := r.buildTwice(ctx, again, c, p)
			if err != nil {
				return "", err
			}
			r.made.binaries = append(r.made.binaries, b)
		}
	}
	return fmt.Sprintf("%d commands for %d platforms, each built twice in different folders with the same bytes", len(r.commands), len(r.platforms)), nil
}

// buildTwice builds a command in the clone and in another one, and checks it.
func (r *rehearsal) buildTwice(ctx context.Context, again repository, c *command, p platform) (_ *binary, err error) {
	name := fmt.Sprintf("%s_%s_%s_%s", c.name, r.version, p.os, p.arch)
	if p.os == "windows" {
		name += ".exe"
	}
	b := &binary{command: c, platform: p, file: filepath.Join(r.dist, name)}
	if err := r.build(ctx, r.clone, b, b.file); err != nil {
		return nil, err
	}
	second := filepath.Join(r.scratch, "again.bin")
	if err := r.build(ctx, again, b, second); err != nil {
		return nil, err
	}
	if b.info, err = buildinfo.ReadFile(b.file); err != nil {
		return nil, err
	}
	if err := r.checkInfo(b); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := same(b.file, second); err != nil {
		return nil, fmt.Errorf("%s is not reproducible: %w", name, err)
	}
	if !p.here() {
		return b, nil
	}
	return b, r.showsVersion(ctx, c, b.file)
}

// build builds the command. The go command itself writes the version and the commit into it, because the repository has the tag. A module that
// requires another one of this repository gets it in its released form, as a user does.
func (r *rehearsal) build(ctx context.Context, at repository, b *binary, file string) (err error) {
	g, m := goHere(), b.command.module
	if len(m.own(r.modules)) > 0 {
		if g, err = r.goOfStranger(ctx); err != nil {
			return err
		}
	}
	_, err = g.with("GOOS="+b.platform.os, "GOARCH="+b.platform.arch).run(ctx, filepath.Join(at.dir, m.dir), "build",
		"-trimpath", "-buildvcs=true", "-mod=readonly", "-ldflags=-s -w", "-o", file, "./"+b.command.dir())
	return err
}

// checkInfo compares what the binary says about itself with the release.
func (r *rehearsal) checkInfo(b *binary) error {
	var all []error
	if b.info.Main.Path != b.command.module.path() {
		all = append(all, fmt.Errorf("it says that it is of module %s, and not %s", b.info.Main.Path, b.command.module.path()))
	}
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
