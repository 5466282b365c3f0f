package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Modules of the product are released, in the order of their needs. Modules that only serve this repository are not.
func TestModulesOfThisRepository(t *testing.T) {
	all, err := findModules("../..")
	require.NoError(t, err)
	at := map[string]int{}
	for i, m := range all {
		at[m.dir] = i
		for _, own := range m.own(all) {
			require.Contains(t, pathsOf(all[:i]), own, "%s stands after what it requires", m.dir)
		}
	}
	for _, dir := range []string{".", "analysis", "httpmw/fasthttpmw"} {
		require.Contains(t, at, dir)
	}
	for dir, want := range map[string]bool{
		"bench": true, "docs/deploy": true, "examples/fit": true, "internal/release": true, "console/browsertest": true, ".": false, "messaging/nats": false,
	} {
		require.Equal(t, want, unreleased(dir), dir)
		if want {
			require.NotContains(t, at, dir)
		}
	}
}

func pathsOf(all []*module) (paths []string) {
	for _, m := range all {
		paths = append(paths, m.path())
	}
	return paths
}

// The last version of a module is that of its own tags, and the next one is a minor version.
func TestVersionsOfModules(t *testing.T) {
	tags := []string{"v0.1.0", "v0.9.0", "v0.10.0", "vnonsense", "adapter/v0.2.0", "adapter/more/v0.3.0", "other"}
	root, adapter := &module{dir: "."}, &module{dir: "adapter"}
	require.Equal(t, "v0.10.0", lastVersion(root, "", tags))
	require.Equal(t, "v0.9.0", lastVersion(root, "v0.10.0", tags))
	require.Equal(t, "v0.2.0", lastVersion(adapter, "", tags))
	require.Empty(t, lastVersion(&module{dir: "new"}, "", tags))
	require.Equal(t, "v0.1.0", nextMinor(""))
	require.Equal(t, "v0.11.0", nextMinor("v0.10.3"))
	require.Equal(t, "adapter/v0.2.0", adapter.tag("v0.2.0"))
}

// Users read in the changelog about each name that is broken.
func TestBreaksAreWrittenDown(t *testing.T) {
	for message, want := range map[string]string{
		"./uow.Manager.Do: changed from func() to func(int)": "Manager.Do",
		"Greeting: removed":                               "Greeting",
		"./uow.Gone: removed":                             "Gone",
		"package github.com/oncebox/oncebox/uow: removed": "github.com/oncebox/oncebox/uow",
	} {
		require.Equal(t, want, subject(message))
	}
	section := "### Added\n\n- `Added`.\n\n### Changed\n\n- `Manager.Do`.\n\n### Removed\n\n- `Gone`.\n\n### Fixed\n\n- `Fixed`.\n"
	require.Equal(t, "Changed\n\n- `Manager.Do`.\nRemoved\n\n- `Gone`.\n", breaking(section))
}

// From v1 on only a new major version breaks programs, whatever the changelog says.
func TestStableVersionsBreakNothing(t *testing.T) {
	all, err := findModules("../..")
	require.NoError(t, err)
	m, broken := all[0], []string{"Greeting: removed"}
	require.ErrorContains(t, checkBreaks(broken, "Removed\n\n- `Greeting`\n", m, "v1.2.0", "v1.1.0"), "only a new major version breaks programs")
	require.NoError(t, checkBreaks(broken, "Removed\n\n- `Greeting`\n", m, "v1.0.0", "v0.9.0"))
	require.NoError(t, checkBreaks(nil, "", m, "v1.2.0", "v1.1.0"))
}
