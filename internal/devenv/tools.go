package devenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const oldestJava = 17

// composeHint is for developers who have a container engine but not the tools.
const composeHint = "or run `docker compose up -d` with this module's compose.yaml and set PULSAR_URL=pulsar://127.0.0.1:6650 " +
	"and PULSAR_ADMIN_URL=http://127.0.0.1:18080"

// provideJava returns the home folder of a Java that can run Pulsar. It installs one if there is none and
// it is possible.
func provideJava(ctx context.Context, opts Options) (string, error) {
	if home := findJava(ctx); home != "" {
		return home, nil
	}
	err := locked(ctx, "java", opts, func(w *workshop) error {
		if findJava(ctx) != "" {
			return nil // another process has installed it meanwhile
		}
		// The version that a system offers depends on its age.
		return install(ctx, w, opts, tool{
			user: "Pulsar", name: fmt.Sprintf("Java %d or newer", oldestJava), hint: composeHint,
			packages: []string{"openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless"},
		})
	})
	if err != nil {
		return "", err
	}
	home := findJava(ctx)
	if home == "" {
		return "", fmt.Errorf("devenv: Pulsar needs Java %d or newer, and apt-get installed an older one: install a newer one, %s", oldestJava, composeHint)
	}
	return home, nil
}

// findJava returns the home folder of an installed Java that can run Pulsar, "" if there is none.
func findJava(ctx context.Context) string {
	var programs []string
	if home := os.Getenv("JAVA_HOME"); home != "" {
		programs = append(programs, filepath.Join(home, "bin", "java"))
	}
	if path, err := exec.LookPath("java"); err == nil {
		programs = append(programs, path)
	}
	if installed, err := filepath.Glob("/usr/lib/jvm/*/bin/java"); err == nil {
		programs = append(programs, installed...)
	}
	for _, program := range programs {
		// The program in PATH is mostly a link into the home folder.
		target, err := filepath.EvalSymlinks(program)
		if err == nil && javaVersion(ctx, target) >= oldestJava {
			return filepath.Dir(filepath.Dir(target))
		}
	}
	return ""
}

var javaVersionText = regexp.MustCompile(`version "(\d+)`)

// javaVersion returns 17 for `openjdk version "17.0.15" 2025-04-15`, 1 for Java 8's "1.8.0", and 0 for any other text.
func javaVersion(ctx context.Context, program string) int {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	text, err := exec.CommandContext(ctx, program, "-version").CombinedOutput()
	if err != nil {
		return 0
	}
	match := javaVersionText.FindSubmatch(text)
	if match == nil {
		return 0
	}
	major, err := strconv.Atoi(string(match[1]))
	if err != nil {
		return 0
	}
	return major
}

// tool is a program that apt-get can install.
type tool struct {
	user, name string
	packages   []string // alternatives; the first that exists is installed
	hint       string   // what a person can do if that fails
}

// install installs the first package that apt-get has, if this process is root on a system with apt-get.
// The error says what a person has to do.
func install(ctx context.Context, w *workshop, opts Options, t tool) error {
	missing := fmt.Errorf("devenv: %s needs %s, which this machine lacks: install it (apt-get install %s), %s", t.user, t.name, t.packages[0], t.hint)
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return missing
	}
	opts.sayf("%s: %s is missing, installing %s with apt-get", t.user, t.name, strings.Join(t.packages, " or "))
	// apt-get waits if another process is installing something.
	aptGet := func(args ...string) error {
		return w.run(ctx, opts, "apt-get", append([]string{"-q", "-y", "-o", "DPkg::Lock::Timeout=120"}, args...)...)
	}
	if err := aptGet("update"); err != nil {
		return errors.Join(missing, err)
	}
	var errs []error
	for _, name := range t.packages {
		err := aptGet("install", "--no-install-recommends", name)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(missing, errors.Join(errs...))
}
