package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/oncebox/oncebox/internal/devenv"
)

// table runs the benchmarks of the paths that each service pays for. With -against it runs each of them in turn with the program of another commit, and
// benchstat decides which figures differ.
func table(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("table", flag.ContinueOnError)
	rounds := flags.Int("rounds", 5, "how often each row is measured")
	against := flags.String("against", "", "a commit or tag to compare with, which takes as long again; \"release\" is the latest tag v*")
	only := flags.String("only", "", "run these benchmarks alone: commit,consume,http,relay,latency,peers")
	if err := parse(flags, args); err != nil {
		return err
	}
	// Shorter than by themselves, so that all of them end within half an hour.
	rows := named([][]string{
		{"commit", "-time", "1s"}, {"consume", "-single", "10000", "-batch", "100000"}, {"http", "-time", "1s"}, {"relay", "-n", "200000"},
		{"latency", "-seconds", "5"}, {"peers", "-n", "20000", "-time", "2s", "-bound", "5s"},
	}, func(row []string) string { return row[0] }, *only)
	dir, err := os.MkdirTemp("", "oncebox-bench")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	here, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	now := contestant{program: here, figures: filepath.Join(dir, "now")}
	if *against == "" {
		return eachRow(rows, func(row []string) error { return now.run(ctx, os.Stdout, row, *rounds) })
	}
	before := contestant{program: filepath.Join(dir, "bench"), figures: filepath.Join(dir, "before")}
	if err := before.build(ctx, dir, *against); err != nil {
		return err
	}
	return withSharedServers(ctx, func() error {
		// In turn, because the machine's speed changes from minute to minute.
		for range *rounds {
			if err := eachRow(rows, func(row []string) error {
				return errors.Join(before.run(ctx, io.Discard, row, 1), now.run(ctx, io.Discard, row, 1))
			}); err != nil {
				return err
			}
		}
		return output(ctx, "go", "tool", "benchstat", *against+"="+before.figures, "now="+now.figures)
	})
}

// eachRow calls fn with each benchmark, until one fails.
func eachRow(rows [][]string, fn func(row []string) error) error {
	for _, row := range rows {
		if err := fn(row); err != nil {
			return fmt.Errorf("%s: %w", row[0], err)
		}
	}
	return nil
}

// withSharedServers runs fn with servers that the commands find in the environment, so that each of them need not start its own.
func withSharedServers(ctx context.Context, fn func() error) error {
	return withPostgres(ctx, func(dsn string) (err error) {
		server, err := devenv.Pulsar(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		for name, value := range map[string]string{"DATABASE_URL": dsn, "PULSAR_URL": server.URL, "PULSAR_ADMIN_URL": server.AdminURL} {
			if err := os.Setenv(name, value); err != nil {
				return err
			}
		}
		return fn()
	})
}

// contestant is a build of this program.
type contestant struct {
	program, figures string
}

// build builds the program of a commit.
func (c contestant) build(ctx context.Context, dir, commit string) error {
	if commit == "release" {
		tag, err := exec.CommandContext(ctx, "git", "describe", "--tags", "--match=v*", "--abbrev=0").Output()
		if err != nil {
			return fmt.Errorf("-against release: find the latest tag v*: %w", err)
		}
		commit = strings.TrimSpace(string(tag))
	}
	tree := filepath.Join(dir, "tree")
	if err := output(ctx, "git", "worktree", "add", "--quiet", "--detach", tree, commit); err != nil {
		return fmt.Errorf("-against %s: %w", commit, err)
	}
	return errors.Join(output(ctx, "go", "build", "-C", filepath.Join(tree, "bench"), "-o", c.program, "."),
		output(ctx, "git", "worktree", "remove", "--force", tree))
}

// run runs a command, whose tables are written to out.
func (c contestant) run(ctx context.Context, out io.Writer, row []string, rounds int) error {
	fmt.Fprintf(out, "\n# %s\n", strings.Join(row, " "))
	args := slices.Concat(row, []string{"-rounds", strconv.Itoa(rounds), "-figures", c.figures})
	cmd := exec.CommandContext(ctx, c.program, args...) //nolint:gosec // this program, or a build of it
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	return cmd.Run()
}

// output runs a program whose output is that of this one.
func output(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // go and git
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return nil
}
