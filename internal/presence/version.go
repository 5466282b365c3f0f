package presence

import (
	"cmp"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
)

// library is the path of the module of oncebox.
const library = "github.com/oncebox/oncebox"

// shortRevision is how many digits of a revision are shown.
const shortRevision = 12

// Versions returns the version of a program, or the revision that it was built from, and that of oncebox in it. "": it is not known.
func Versions(info *debug.BuildInfo) (program, oncebox string) {
	if info == nil {
		return "", ""
	}
	program = released(info.Main.Version)
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			program = cmp.Or(program, s.Value[:min(len(s.Value), shortRevision)])
		}
	}
	if info.Main.Path == library {
		return program, program
	}
	for _, m := range info.Deps {
		if m.Path == library {
			return program, released(m.Version)
		}
	}
	return program, ""
}

// released returns the version of a module, "" if it was built from a folder.
func released(version string) string {
	if version == "(devel)" {
		return ""
	}
	return version
}

// Name returns the name of this process: its host and its process id. Without a name of the host it is "-" and the process id.
func Name() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// Signature returns the name of this process and the version of its program, if that is known.
func Signature() string {
	info, _ := debug.ReadBuildInfo()
	program, _ := Versions(info)
	return strings.TrimSpace(Name() + " " + program)
}

// Signer returns the name of the process that has a signature, and its version, "" if the signature has none.
func Signer(signature string) (name, version string) {
	name, version, _ = strings.Cut(signature, " ")
	return name, version
}
