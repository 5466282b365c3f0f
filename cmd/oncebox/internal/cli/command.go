package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes, see the package comment.
const (
	ExitDone = iota
	ExitFailed
	ExitUsage
	ExitFindings
	ExitNothing
	ExitRefused
)

// ExitError is an error that ends the command with an exit code of its own.
type ExitError struct {
	Code int
	err  error
}

// Exit returns an error that ends the command with a code.
func Exit(code int, err error) error { return &ExitError{code, err} }

func (e *ExitError) Error() string { return e.err.Error() }
func (e *ExitError) Unwrap() error { return e.err }

// Usage marks an error as a mistake in the command line, for which the exit code is ExitUsage, and adds where the help
// is. Nothing was asked of the database by then.
func Usage(cmd *cobra.Command, err error) error {
	return Exit(ExitUsage, fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
}

// Complain prints a text about what is wrong, behind the name of the program.
func (s *Session) Complain(text string) { fmt.Fprintln(s.Errs, s.Name()+":", text) }

// NoArgs refuses arguments. cobra's own function does not say which command was meant.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage(cmd, fmt.Errorf("%s takes no argument, and got %q", cmd.CommandPath(), args[0]))
	}
	return nil
}

// Group returns a command that only has subcommands. cobra would print the help for a mistyped subcommand and exit with
// 0, which a script takes for success.
func Group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return Usage(cmd, fmt.Errorf("%s has no command %q", cmd.CommandPath(), args[0]))
		}
		return cmd.Help()
	}}
	cmd.AddCommand(commands...)
	return cmd
}

// Takes refuses any other number of arguments. what is the rule in words, such as "grants takes one duty".
func Takes(number int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != number {
			return Usage(cmd, errors.New(what))
		}
		return nil
	}
}

// ExactlyOneID accepts exactly one argument.
func ExactlyOneID(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return Usage(cmd, fmt.Errorf("%s takes one id, and got %d arguments", cmd.CommandPath(), len(args)))
	}
	return nil
}

// NeedsActor refuses a decision without an actor, because the audit has to name one.
func NeedsActor(by string) error {
	if strings.TrimSpace(by) == "" {
		return errors.New("--by is missing: say who decides, --by ann")
	}
	return nil
}
