package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
)

// Exit codes, see the package comment.
const (
	exitDone = iota
	exitFailed
	exitUsage
	exitFindings
	exitNothing
	exitRefused
)

// exitError ends the command with a code of its own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// terminal is where a command reads and writes.
type terminal struct {
	in        io.Reader
	out, errs io.Writer
	asks      bool                       // somebody can answer a question
	shows     bool                       // somebody looks at errs
	size      func() (width, height int) // of the terminal that out is; nil: it is none
}

// run runs one command and returns its exit code.
func run(ctx context.Context, t *terminal, args []string) int {
	s := &session{terminal: t, level: slog.LevelWarn}
	root := newRoot(s)
	root.SetArgs(args)
	root.SetIn(t.in)
	root.SetOut(t.out)
	root.SetErr(t.errs)
	err := errors.Join(root.ExecuteContext(ctx), s.close())
	if err == nil {
		return exitDone
	}
	fmt.Fprintln(t.errs, "oncebox:", err)
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit.code
	}
	return exitFailed
}

func newRoot(s *session) *cobra.Command {
	root := group("oncebox", "See what the tables of oncebox hold, and decide about dead letters",
		newStatus(s), newStuck(s), newShow(s), newDead(s), newParked(s), newConsumers(s), newDelayed(s), newKeys(s), newLanes(s),
		newTenants(s), newReconcile(s), newRetention(s), newRebuild(s), newMigrate(s), newGrants(s), newDoctor(s), newRelay(s))
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(usage)
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) { s.running = cmd }
	flags := root.PersistentFlags()
	flags.StringVar(&s.databaseURL, "database-url", "", "PostgreSQL, in place of ONCEBOX_DATABASE_URL and DATABASE_URL")
	flags.StringVar(&s.schema, "schema", "", "schema of the tables, in place of ONCEBOX_SCHEMA")
	flags.BoolVar(&s.json, "json", false, "print one JSON document in place of tables")
	withoutFiles(root)
	return root
}

// withoutFiles has the shell offer no files as arguments: no command takes one.
func withoutFiles(cmd *cobra.Command) {
	if len(cmd.ValidArgs) == 0 {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, sub := range cmd.Commands() {
		withoutFiles(sub)
	}
}

// usage is an error of the caller.
func usage(cmd *cobra.Command, err error) error {
	return &exitError{exitUsage, fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
}

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(cmd, fmt.Errorf("%s takes no argument, and got %q", cmd.CommandPath(), args[0]))
	}
	return nil
}

// group is a command that has others and does nothing by itself.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage(cmd, fmt.Errorf("%s has no command %q", cmd.CommandPath(), args[0]))
		}
		return cmd.Help()
	}}
	cmd.AddCommand(commands...)
	return cmd
}
