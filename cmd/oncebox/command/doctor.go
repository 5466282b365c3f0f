package command

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/doctor"
	"github.com/oncebox/oncebox/migrations"
)

// newDoctor makes the command doctor. It has to run with the service's own variables and role: with others it would
// compare what the service does not use.
func newDoctor(s *cli.Session) *cobra.Command {
	var duty string
	var topics []string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Compare the settings with each other, with the database and with the broker", Args: cli.NoArgs,
		Long: `Compare the settings of the service with each other, with the database, and with the broker if one is set.
It only reads. Run it with the variables and the role of the service.

Exit code 0: nothing was found. 3: something was found; each finding says what to do.`,
		Example: `  oncebox doctor
  oncebox doctor --duty writer
  oncebox doctor --topic order --topic invoice --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Missing tables are a finding here and not an error, hence not OpenTables.
			if err := s.ChooseBroker(); err != nil {
				return err
			}
			if err := s.Open(cmd.Context()); err != nil {
				return err
			}
			target := doctor.Target{DB: s.DB, Config: s.Cfg, Duty: migrations.Duty(duty), Broker: s.Kind, Topics: topics}
			bar := s.Progress("checks", 0)
			found := doctor.Examine(cmd.Context(), target, func(_ string, n, of int) {
				// How many checks there are depends on the broker, so the number comes with each call.
				bar.Of = int64(of)
				bar.Show(int64(n))
			})
			bar.End()
			return printFindings(s, renamed(cmd, found), s.Kind != nil)
		},
	}
	cmd.Flags().StringVar(&duty, "duty", string(migrations.Service), "what the database role is used for: service, writer, caller or reader (see oncebox "+
		"grants)")
	cmd.Flags().StringSliceVar(&topics, "topic", nil, "topics to check (default: all topics of the service's broker)")
	return cmd
}

// renamed returns the findings with the name of the program in the commands that they ask for.
func renamed(cmd *cobra.Command, found []doctor.Finding) []doctor.Finding {
	for n := range found {
		f := &found[n]
		f.Problem, f.Mend = cli.Renamed(cmd, f.Problem), cli.Renamed(cmd, f.Mend)
	}
	return found
}

// diagnosis is the JSON output of doctor.
type diagnosis struct {
	Findings []doctor.Finding `json:"findings"`
	// Broker is true if a broker was examined.
	Broker bool `json:"broker"`
}

// printFindings prints the findings. If there are none it says so, and whether a broker was examined: silence could mean
// either.
func printFindings(s *cli.Session, found []doctor.Finding, broker bool) error {
	if s.JSON {
		// The copy makes an empty list of nil, so that scripts get [] and not null.
		if err := s.Document(diagnosis{append([]doctor.Finding{}, found...), broker}); err != nil {
			return err
		}
	}
	for _, f := range found {
		if !s.JSON {
			fmt.Fprintf(s.Out, "%s (%s): %s\n  to mend it: %s\n", f.Severity, f.Check, cli.Printable(f.Problem), cli.Printable(f.Mend))
		}
	}
	if len(found) > 0 {
		return cli.Exit(cli.ExitFindings, errors.New(cli.Several(len(found), "finding", "findings")))
	}
	if s.JSON {
		return nil
	}
	text := "Nothing was found."
	if !broker {
		text = "Nothing was found in settings and database. No broker was looked at: " + s.NoBroker() + "."
	}
	_, err := fmt.Fprintln(s.Out, text)
	return err
}
