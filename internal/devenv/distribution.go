package devenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const (
	pulsarVersion  = "4.0.8"
	pulsarArtifact = "org.apache.pulsar:pulsar-server-distribution:" + pulsarVersion + ":tar.gz:bin"
	mavenCopy      = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
)

// fetchPulsar returns the folder with Pulsar in the user's cache folder. The first call downloads it.
func fetchPulsar(ctx context.Context, opts Options) (string, error) {
	return cached(ctx, "apache-pulsar-"+pulsarVersion, opts, func(w *workshop) error {
		if err := provideMaven(ctx, w, opts, "Pulsar"); err != nil {
			return err
		}
		opts.sayf("Pulsar: not in the user's cache folder, fetching %s with Maven (245 MB, once)", pulsarVersion)
		return unpackPulsar(ctx, w, opts)
	})
}

// provideMaven installs Maven if it is missing and that is possible.
func provideMaven(ctx context.Context, w *workshop, opts Options, user string) error {
	if _, err := exec.LookPath("mvn"); err == nil {
		return nil
	}
	return install(ctx, w, opts, tool{user: user, name: "Maven", packages: []string{"maven"}, hint: composeHint})
}

// maven runs Maven. With --strict-checksums a wrong checksum is an error. Maven would print its progress without --quiet.
func (w *workshop) maven(ctx context.Context, opts Options, args ...string) error {
	args = append([]string{"--strict-checksums"}, args...)
	if home, err := os.UserHomeDir(); err == nil {
		args = append(args, "-Duser.home="+home) // Java takes the home folder from the user database, other programs from HOME
	}
	if opts.terminal() == nil {
		args = append(args, "--quiet", "--batch-mode", "-Dstyle.color=never")
	}
	return w.run(ctx, opts, "mvn", args...)
}

// unpackPulsar downloads the distribution and unpacks it into the workshop's subfolder "unpacked".
func unpackPulsar(ctx context.Context, w *workshop, opts Options) error {
	if err := w.maven(ctx, opts, mavenCopy, "-Dartifact="+pulsarArtifact, "-DoutputDirectory="+w.folder); err != nil {
		return fmt.Errorf("devenv: fetch Pulsar: %w\n%s", err, composeHint)
	}
	archives, err := filepath.Glob(filepath.Join(w.folder, "*.tar.gz"))
	if err != nil {
		return fmt.Errorf("devenv: fetch Pulsar: %w", err)
	}
	if len(archives) != 1 {
		return errors.New("devenv: fetch Pulsar: Maven left no archive")
	}
	home := filepath.Join(w.folder, unpacked)
	if err := os.Mkdir(home, 0o755); err != nil {
		return fmt.Errorf("devenv: unpack Pulsar: %w", err)
	}
	return w.run(ctx, opts, "tar", "-xzf", archives[0], "-C", home, "--strip-components=1")
}
