package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/migrations"
)

func newMigrate(s *session) *cobra.Command {
	up := &cobra.Command{
		Use: "up", Short: "Make the tables, or bring them up to date", Args: noArgs,
		Example: "  oncebox migrate up",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.open(cmd.Context()); err != nil {
				return err
			}
			if err := migrations.Up(cmd.Context(), s.db, s.migrations()); err != nil {
				return err
			}
			return s.printVerdict(verdict{UpToDate: true}, "The tables are up to date.")
		},
	}
	status := &cobra.Command{
		Use: "status", Short: "Say which files were not applied", Args: noArgs,
		Example: "  oncebox migrate status --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.open(cmd.Context()); err != nil {
				return err
			}
			return s.judge(migrations.Applied(cmd.Context(), s.db, s.migrations()), "All files were applied.")
		},
	}
	verify := &cobra.Command{
		Use: "verify", Short: "Compare the tables with what the files make, and print the SQL that mends each difference", Args: noArgs,
		Example: "  oncebox migrate verify",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.open(cmd.Context()); err != nil {
				return err
			}
			return s.judge(migrations.Verify(cmd.Context(), s.db, s.migrations()), "The tables are as the files make them.")
		},
	}
	return group("migrate", "Make the tables, and check them", up, status, verify)
}

// verdict is what the commands print as JSON.
type verdict struct {
	UpToDate    bool         `json:"up_to_date"`
	Missing     []string     `json:"missing,omitempty"`
	Unknown     []string     `json:"unknown,omitempty"`
	Differences []difference `json:"differences,omitempty"`
}

type difference struct {
	Object  string `json:"object"`
	Problem string `json:"problem"`
	Mend    string `json:"mend"`
}

// judge tells findings apart from a check that failed.
func (s *session) judge(err error, fine string) error {
	var (
		missing *migrations.MissingError
		differs *migrations.DifferenceError
		v       verdict
	)
	switch {
	case err == nil:
		v.UpToDate = true
		return s.printVerdict(v, fine)
	case errors.As(err, &missing):
		v.Missing, v.Unknown = missing.Missing, missing.Unknown
	case errors.As(err, &differs):
		for _, d := range differs.Differences {
			v.Differences = append(v.Differences, difference(d))
		}
	default:
		return err
	}
	if s.json {
		if failed := s.document(v); failed != nil {
			return failed
		}
	}
	return &exitError{exitFindings, err}
}

func (s *session) printVerdict(v verdict, fine string) error {
	if s.json {
		return s.document(v)
	}
	_, err := fmt.Fprintln(s.out, fine)
	return err
}
