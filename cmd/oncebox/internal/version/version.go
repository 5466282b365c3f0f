// Package version is the command that says which build of oncebox runs. The go command writes the version and the commit into each program that it
// builds, so there is nothing to set: https://pkg.go.dev/runtime/debug#BuildInfo.
package version

import (
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
)

// product is the module whose version counts, also in programs of other modules, such as oncebox-nats.
const product = "github.com/oncebox/oncebox"

// build is what the program says about itself. Scripts use the names in JSON, so they never change.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Module   string `json:"module"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// New makes the command. It needs no database.
func New(s *cli.Session) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version, the commit and the version of Go that this program was built from",
		Long: `Show the version, the commit and the version of Go that this program was built from.

A program that go install has fetched knows its version and no commit. A program that was built in the repository knows both; between two releases
its version is made of the last version, the time and the commit.`,
		Example: `  oncebox version
  oncebox version --json`,
		Args: cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			info, _ := debug.ReadBuildInfo()
			return show(s, of(info))
		},
	}
}

func show(s *cli.Session, b build) error {
	if s.JSON {
		return s.Document(b)
	}
	commit := b.Commit
	if commit != "" && b.Modified {
		commit += ", and files that are not committed"
	}
	return s.Pairs("version", b.Version, "commit", commit, "committed", b.Time, "module", b.Module, "go", b.Go, "platform", b.Platform)
}

// of reads the build information of a program, which is nil for a program that was built without modules.
func of(info *debug.BuildInfo) build {
	b := build{Version: "unknown", Module: product, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info == nil {
		return b
	}
	b.Module = info.Main.Path
	if isOurs(info.Main.Path) && info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, m := range info.Deps {
		if m.Path == product && !isOurs(info.Main.Path) {
			b.Version = m.Version
		}
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// isOurs reports whether a module belongs to the repository of oncebox. All of its modules have the same version.
func isOurs(module string) bool { return module == product || strings.HasPrefix(module, product+"/") }
