package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// repository is a folder with a git repository.
type repository struct {
	dir string
	env []string // variables in addition to those of this process
}

// run calls git and returns what it prints, without the last line feed.
func (r repository) run(ctx context.Context, args ...string) (string, error) {
	// What a person has set for his own commits must not change the commits and tags of a release.
	fixed := []string{
		"-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false", "-c", "core.hooksPath=/dev/null", "-c", "core.autocrlf=false",
		"-c", "advice.detachedHead=false",
	}
	out, err := output(ctx, r.dir, r.env, "git", append(fixed, args...)...)
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimRight(string(out), "\n"), nil
}

// lines calls git and returns the lines that it prints.
func (r repository) lines(ctx context.Context, args ...string) ([]string, error) {
	out, err := r.run(ctx, args...)
	if err != nil || out == "" {
		return nil, err
	}
	return strings.Split(out, "\n"), nil
}

// open returns the repository that has dir.
func open(ctx context.Context, dir string) (repository, error) {
	top, err := repository{dir: dir}.run(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return repository{}, fmt.Errorf("find the repository of %s: %w", dir, err)
	}
	return repository{dir: top}, nil
}

// cloneTo clones the repository with all its tags into the folder dir, at a revision. The clone shares the objects of the repository, so it takes
// no time.
func (r repository) cloneTo(ctx context.Context, dir, revision string) (repository, error) {
	if _, err := r.run(ctx, "clone", "--quiet", "--shared", "--no-checkout", r.dir, dir); err != nil {
		return repository{}, err
	}
	clone := repository{dir: dir}
	_, err := clone.run(ctx, "checkout", "--quiet", "--detach", revision)
	return clone, err
}

// asLastCommit returns the repository with commits and tags made in the name and at the time of the last commit. Therefore the same commit always
// gives the same release, to the byte.
func (r repository) asLastCommit(ctx context.Context) (repository, time.Time, error) {
	about, err := r.lines(ctx, "log", "-1", "--format=%an%n%ae%n%cI")
	if err != nil {
		return r, time.Time{}, err
	}
	name, mail, date := about[0], about[1], about[2]
	when, err := time.Parse(time.RFC3339, date)
	if err != nil {
		return r, time.Time{}, fmt.Errorf("read the time of the last commit: %w", err)
	}
	r.env = []string{
		"GIT_AUTHOR_NAME=" + name, "GIT_AUTHOR_EMAIL=" + mail, "GIT_AUTHOR_DATE=" + date,
		"GIT_COMMITTER_NAME=" + name, "GIT_COMMITTER_EMAIL=" + mail, "GIT_COMMITTER_DATE=" + date,
	}
	return r, when.UTC(), nil
}

// output runs a program and returns its standard output. An error has what it wrote to the standard error.
func output(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%w: %s", err, strings.TrimSpace(errs.String()))
	}
	return out, nil
}
