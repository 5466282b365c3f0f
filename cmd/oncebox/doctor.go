package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/doctor"
	"github.com/oncebox/oncebox/migrations"
)

func newDoctor(s *session) *cobra.Command {
	var duty string
	var topics []string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Compare the settings with each other, with the database and with the broker", Args: noArgs,
		Long: `Compare the settings of the service with each other, with the database, and with the broker if ONCEBOX_PULSAR_URL is set.
It only reads. Run it with the variables and the role of the service.

Exit code 0: nothing was found. 3: something was found; each finding says what to do.`,
		Example: `  oncebox doctor
  oncebox doctor --duty writer
  oncebox doctor --topic order --topic invoice --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.open(cmd.Context()); err != nil {
				return err
			}
			broker, err := s.pulsarConfig()
			if err != nil {
				return err
			}
			target := doctor.Target{DB: s.db, Config: s.cfg, Duty: migrations.Duty(duty), Pulsar: broker, Topics: topics}
			bar := s.progress("checks", 0)
			found := doctor.Examine(cmd.Context(), target, func(_ string, n, of int) {
				bar.of = int64(of)
				bar.show(int64(n))
			})
			bar.end()
			return s.printFindings(found, target.Pulsar != nil)
		},
	}
	cmd.Flags().StringVar(&duty, "duty", string(migrations.Service), "what the role of the database does, see oncebox grants")
	cmd.Flags().StringSliceVar(&topics, "topic", nil, "topics to look at (default: all of the namespace)")
	return cmd
}

// diagnosis is what doctor prints as JSON.
type diagnosis struct {
	Findings []doctor.Finding `json:"findings"`
	// Broker says whether a broker was looked at.
	Broker bool `json:"broker"`
}

func (s *session) printFindings(found []doctor.Finding, broker bool) error {
	if s.json {
		if err := s.document(diagnosis{append([]doctor.Finding{}, found...), broker}); err != nil {
			return err
		}
	}
	for _, f := range found {
		if !s.json {
			fmt.Fprintf(s.out, "%s (%s): %s\n  to mend it: %s\n", f.Severity, f.Check, printable(f.Problem), printable(f.Mend))
		}
	}
	if len(found) > 0 {
		return &exitError{exitFindings, errors.New(several(len(found), "finding", "findings"))}
	}
	if s.json {
		return nil
	}
	text := "Nothing was found."
	if !broker {
		text = "Nothing was found in settings and database. No broker was looked at: ONCEBOX_PULSAR_URL is not set."
	}
	_, err := fmt.Fprintln(s.out, text)
	return err
}
