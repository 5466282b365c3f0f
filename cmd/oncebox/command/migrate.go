package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/migrations"
)

// newMigrate makes the group migrate. Only up changes the database. The other two end with code 3 if something differs,
// so that a deployment can stop there.
func newMigrate(s *cli.Session) *cobra.Command {
	up := &cobra.Command{
		Use: "up", Short: "Create the tables, or bring them up to date", Args: cli.NoArgs,
		Example: "  oncebox migrate up",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.Open(cmd.Context()); err != nil {
				return err
			}
			var missing *migrations.MissingError
			if err := migrations.Applied(cmd.Context(), s.DB, s.Migrations()); err != nil && !errors.As(err, &missing) {
				return err
			}
			if err := migrations.Up(cmd.Context(), s.DB, s.Migrations()); err != nil {
				return err
			}
			v, done := verdict{UpToDate: true}, "The tables are up to date."
			if missing != nil && len(missing.Missing) > 0 {
				v.Applied = missing.Missing
				done = fmt.Sprintf("The tables are up to date; %d migration files were missing: %s.", len(v.Applied), strings.Join(v.Applied, ", "))
			}
			return printVerdict(s, v, done)
		},
	}
	status := &cobra.Command{
		Use: "status", Short: "List the migration files that were not applied yet", Args: cli.NoArgs,
		Example: "  oncebox migrate status --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.Open(cmd.Context()); err != nil {
				return err
			}
			return judge(s, migrations.Applied(cmd.Context(), s.DB, s.Migrations()), "All migration files were applied.")
		},
	}
	verify := &cobra.Command{
		Use: "verify", Short: "Compare the tables with the migration files, and print the SQL that mends each difference", Args: cli.NoArgs,
		Example: "  oncebox migrate verify",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.Open(cmd.Context()); err != nil {
				return err
			}
			return judge(s, migrations.Verify(cmd.Context(), s.DB, s.Migrations()), "The tables are as the migration files create them.")
		},
	}
	return cli.Group("migrate", "Create and check the tables", up, status, verify)
}

// The JSON output of the commands.
type verdict struct {
	UpToDate    bool         `json:"up_to_date"`
	Applied     []string     `json:"applied,omitempty"`
	Missing     []string     `json:"missing,omitempty"`
	Unknown     []string     `json:"unknown,omitempty"`
	Differences []difference `json:"differences,omitempty"`
}

// difference has the names that the output uses, so that they do not depend on the names of Go fields.
type difference struct {
	Object  string `json:"object"`
	Problem string `json:"problem"`
	Mend    string `json:"mend"`
}

// judge prints the result of a check, and returns the error that sets the exit code.
func judge(s *cli.Session, err error, fine string) error {
	var (
		missing *migrations.MissingError
		differs *migrations.DifferenceError
		v       verdict
	)
	switch {
	case err == nil:
		v.UpToDate = true
		return printVerdict(s, v, fine)
	case errors.As(err, &missing):
		v.Missing, v.Unknown = missing.Missing, missing.Unknown
	case errors.As(err, &differs):
		for _, d := range differs.Differences {
			v.Differences = append(v.Differences, difference(d))
		}
	default:
		return err
	}
	if s.JSON {
		if failed := s.Document(v); failed != nil {
			return failed
		}
	}
	return cli.Exit(cli.ExitFindings, err)
}

// printVerdict prints that all is well. Anything else is an error, which run prints.
func printVerdict(s *cli.Session, v verdict, fine string) error {
	if s.JSON {
		return s.Document(v)
	}
	_, err := fmt.Fprintln(s.Out, fine)
	return err
}
