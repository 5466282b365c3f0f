package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/require"
)

// made is a release up to its binaries and licences.
func made(t *testing.T) *rehearsal {
	t.Helper()
	r := rehearse(t, small(t), "")
	must(t, r.inspect, r.commit, r.zips, r.buildBinaries, r.checkLicences)
	return r
}

// A binary with the paths of its folder is not reproducible. A binary of another version, with open files or with a replacement is not the release.
func TestBinariesAreThoseOfTheRelease(t *testing.T) {
	r := rehearse(t, small(t), "")
	must(t, r.inspect, r.commit)
	one, other := filepath.Join(r.scratch, "one"), filepath.Join(r.scratch, "other")
	elsewhere, err := r.clone.cloneTo(t.Context(), filepath.Join(r.scratch, "elsewhere"), "v0.1.0")
	require.NoError(t, err)
	for file, dir := range map[string]string{one: r.clone.dir, other: elsewhere.dir} {
		_, err := goHere().run(t.Context(), dir, "build", "-trimpath=false", "-o", file, "./cmd/tool")
		require.NoError(t, err)
	}
	require.ErrorContains(t, same(one, other), "built in two folders")
	require.NoError(t, same(one, one))

	c := r.commands[0]
	r = &rehearsal{version: "v0.1.0", scratch: r.scratch}
	for says, want := range map[string]string{
		"v0.2.0 github.com/acme/tool": "does not say v0.1.0", "v0.1.0 github.com/acme/tools": "does not say github.com/acme/tool:",
	} {
		require.NoError(t, os.WriteFile(one, []byte("#!/bin/sh\necho "+says+"\n"), 0o700))
		require.ErrorContains(t, r.showsVersion(t.Context(), c, one), want)
	}
	for want, info := range map[string]buildinfo.BuildInfo{
		"it says that it is version (devel), and not v0.1.0":                       {Main: debug.Module{Version: "(devel)"}},
		"it says that it is of module example.com/y, and not github.com/acme/tool": {Main: debug.Module{Path: "example.com/y", Version: "v0.1.0"}},
		"with files that are not committed": {
			Main: debug.Module{Version: "v0.1.0"}, Settings: []debug.BuildSetting{{Key: "vcs.modified", Value: "true"}},
		},
		"it has ../fork in place of example.com/x": {
			Main: debug.Module{Version: "v0.1.0"}, Deps: []*debug.Module{{Path: "example.com/x", Replace: &debug.Module{Path: "../fork"}}},
		},
	} {
		require.ErrorContains(t, r.checkInfo(&binary{command: c, info: &info}), want)
	}
}

// A licence that is not known or not accepted is reported. Notices go along.
func TestLicencesOfModules(t *testing.T) {
	apache := readFile(t, "../../LICENSE")
	const gpl = "This program is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License as published by " +
		"the Free Software Foundation, either version 3 of the License, or (at your option) any later version.\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  string // an error
	}{
		"accepted":     {map[string]string{"LICENSE": apache, "NOTICE": "Made by Ann."}, ""},
		"other names":  {map[string]string{"COPYING.txt": apache, "licence.md": apache}, ""},
		"none":         {map[string]string{"README.md": apache}, "it has no licence that is known"},
		"unknown":      {map[string]string{"LICENSE": "Not on Mondays."}, "it has no licence that is known"},
		"not accepted": {map[string]string{"LICENSE": apache, "COPYING": gpl}, "its licence is GPL-3.0"},
	} {
		dir := t.TempDir()
		for file, text := range c.files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
		}
		l, err := readLicence(dir)
		if c.want != "" {
			require.ErrorContains(t, err, c.want, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, []string{"Apache-2.0"}, l.kinds)
		require.Len(t, l.texts, 2)
	}
}

// The list of a binary names what the binary names, no module less and none more.
func TestListOfABinaryIsChecked(t *testing.T) {
	r := made(t)
	must(t, r.listBinaries)
	b := r.made.binaries[0]
	b.info.Deps = []*debug.Module{{Path: "example.com/x", Version: "v1.0.0", Sum: "h1:x"}, {Path: "example.com/y", Version: "v1.0.0"}}
	name := filepath.Join(r.scratch, "list.json")
	require.NoError(t, r.writeList(b, name))
	count, err := checkList(b, name)
	require.NoError(t, err)
	require.Equal(t, 3, count)
	require.Contains(t, readFile(t, name), `"pkg:golang/example.com/x@v1.0.0"`)
	b.info.Deps[1].Version = "v1.1.0"
	_, err = checkList(b, name)
	require.ErrorContains(t, err, "it does not name example.com/y@v1.1.0")
	b.info.Deps = b.info.Deps[:1]
	_, err = checkList(b, name)
	require.ErrorContains(t, err, "modules that the binary does not contain: example.com/y@v1.0.0")
	require.NoError(t, os.WriteFile(name, []byte("{"), 0o600))
	_, err = checkList(b, name)
	require.Error(t, err)
}

// An image with another byte, with root as its user, or without certificates is found when it is read back.
func TestImageIsReadBack(t *testing.T) {
	r := made(t)
	must(t, r.buildImages)
	file := filepath.Join(r.dist, "tool_v0.1.0_image.tar")
	text := []byte(readFile(t, file))
	at := bytes.Index(text, []byte(`"architecture"`))
	text[at+1] = 'A'
	broken := filepath.Join(r.scratch, "broken.tar")
	require.NoError(t, os.WriteFile(broken, text, 0o600))
	_, err := (&rehearsal{scratch: t.TempDir()}).readImage(t.Context(), r.commands[0], broken)
	require.ErrorContains(t, err, "has the digest sha256:")

	image, err := r.imageOf(r.made.binaries[0])
	require.NoError(t, err)
	for want, change := range map[string]func(*v1.Config){
		"it runs as root":      func(c *v1.Config) { c.User = "0:0" },
		"it has no entrypoint": func(c *v1.Config) { c.Entrypoint = nil },
	} {
		config, err := image.ConfigFile()
		require.NoError(t, err)
		config = config.DeepCopy()
		change(&config.Config)
		other, err := mutate.ConfigFile(image, config)
		require.NoError(t, err)
		_, err = r.unpackImage(other, t.TempDir())
		require.ErrorContains(t, err, want)
	}
}

// Everything in an archive has the time of the commit and belongs to root, and each folder stands before what is in it.
func TestArchiveIsTheSameEverywhere(t *testing.T) {
	when := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	text, err := archive([]imageFile{{"a/b/c", 0o444, []byte("c")}, {"a/d", 0o555, []byte("d")}, {"e", 0o444, nil}}, when)
	require.NoError(t, err)
	var names []string
	for r := tar.NewReader(bytes.NewReader(text)); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		names = append(names, h.Name)
		require.True(t, when.Equal(h.ModTime))
		require.Zero(t, h.Uid+h.Gid)
	}
	require.Equal(t, "a/ a/b/ a/b/c a/d e", strings.Join(names, " "))
	require.Error(t, unpackTar(bytes.NewReader(bytes.ReplaceAll(text, []byte("a/d"), []byte("../"))), t.TempDir()), "nothing is written outside")
}
