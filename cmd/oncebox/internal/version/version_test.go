package version

import (
	"bytes"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
)

// Each way to get the program shows what it knows: built in the repository, with open files, installed, built as the main of another module of the
// repository, or built into a program of somebody else.
func TestVersionOfEachKindOfBuild(t *testing.T) {
	t.Parallel()
	here := build{Version: "unknown", Module: product, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	changed := func(change func(*build)) build {
		b := here
		change(&b)
		return b
	}
	committed := []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123abcd"}, {Key: "vcs.time", Value: "2026-11-27T03:00:00Z"}, {Key: "vcs.modified", Value: "false"},
	}
	for name, c := range map[string]struct {
		info *debug.BuildInfo
		want build
	}{
		"no modules": {nil, here},
		"in the repository": {
			&debug.BuildInfo{Main: debug.Module{Path: product, Version: "v0.1.0"}, Settings: committed},
			changed(func(b *build) { b.Version, b.Commit, b.Time = "v0.1.0", "0123abcd", "2026-11-27T03:00:00Z" }),
		},
		"with open files": {
			&debug.BuildInfo{Main: debug.Module{Path: product, Version: "v0.1.0+dirty"}, Settings: []debug.BuildSetting{{Key: "vcs.modified", Value: "true"}}},
			changed(func(b *build) { b.Version, b.Modified = "v0.1.0+dirty", true }),
		},
		"installed": {
			&debug.BuildInfo{Main: debug.Module{Path: product, Version: "v0.1.0"}},
			changed(func(b *build) { b.Version = "v0.1.0" }),
		},
		"another module": {
			&debug.BuildInfo{
				Main: debug.Module{Path: product + "/messaging/nats", Version: "v0.1.0"}, Deps: []*debug.Module{{Path: product, Version: "v0.0.0"}},
			},
			changed(func(b *build) { b.Version, b.Module = "v0.1.0", product+"/messaging/nats" }),
		},
		"a program of somebody else": {
			&debug.BuildInfo{Main: debug.Module{Path: "example.com/tools", Version: "v3.0.0"}, Deps: []*debug.Module{{Path: product, Version: "v0.1.0"}}},
			changed(func(b *build) { b.Version, b.Module = "v0.1.0", "example.com/tools" }),
		},
	} {
		require.Equal(t, c.want, of(c.info), name)
	}
}

// The text leaves out what is not known, and says that files were not committed.
func TestVersionIsShown(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := &cli.Session{Terminal: &cli.Terminal{Out: &out}}
	require.NoError(t, show(s, build{Version: "v0.1.0", Commit: "0123abcd", Modified: true, Module: product, Go: "go1.26.0", Platform: "linux/arm64"}))
	require.Equal(t, "version   v0.1.0\ncommit    0123abcd, and files that are not committed\nmodule    github.com/oncebox/oncebox\n"+
		"go        go1.26.0\nplatform  linux/arm64\n", out.String())
	out.Reset()
	require.NoError(t, show(s, build{Version: "v0.1.0", Module: product, Go: "go1.26.0", Platform: "linux/arm64"}))
	require.NotContains(t, out.String(), "commit")
	out.Reset()
	s.JSON = true
	require.NoError(t, show(s, build{Version: "v0.1.0", Module: product, Go: "go1.26.0", Platform: "linux/arm64"}))
	require.JSONEq(t, `{"version":"v0.1.0","module":"github.com/oncebox/oncebox","go":"go1.26.0","platform":"linux/arm64"}`, out.String())
}
