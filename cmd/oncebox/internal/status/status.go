package status

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/outbox/adopt"
)

// New returns the command.
func New(s *cli.Session) *cobra.Command {
	var (
		filter   ops.Filter
		interval time.Duration
	)
	cmd := &cobra.Command{
		Use: "status", Short: "Show on one screen what waits, what is dead, and what runs", Args: cli.NoArgs,
		Long: `Show on one screen what waits in the outbox and since when, what is dead, which processes publish and which consumers run, and what waits for
each of them. It never counts a whole backlog: a number is exact up to 10,000 and estimated beyond.

With --watch it shows so again every two seconds, or --watch=10s, until Ctrl-C: on a terminal in place, with the course of backlog, age and rates; elsewhere
one line each time, or one JSON document on a line. --tenant and --topic select what is counted of events and messages, --consumer selects consumers.`,
		Example: `  oncebox status
  oncebox status --watch
  oncebox status --tenant acme --topic order
  oncebox status --consumer billing --watch=10s >> status.log`,
	}
	flags := cmd.Flags()
	flags.StringVar(&filter.Tenant, "tenant", "", "count only events and messages of this tenant")
	flags.StringVar(&filter.Topic, "topic", "", "count only events and messages of this topic")
	flags.StringVar(&filter.Consumer, "consumer", "", "show only this consumer")
	flags.DurationVar(&interval, "watch", 0, "show it again at this interval, until Ctrl-C")
	flags.Lookup("watch").NoOptDefVal = "2s"
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		watched := cmd.Flags().Changed("watch")
		if watched && interval <= 0 {
			return cli.Usage(cmd, errors.New("--watch is not above 0"))
		}
		if err := s.ChooseBroker(); err != nil {
			return err
		}
		if err := s.OpenTables(cmd.Context()); err != nil {
			return err
		}
		if watched {
			return watch(cmd.Context(), s, filter, interval)
		}
		view, err := s.ViewOfBroker(cmd.Context())
		if err != nil {
			return err
		}
		st, err := view.Status(cmd.Context(), filter)
		if err != nil {
			return err
		}
		adopted, err := adopt.States(cmd.Context(), s.Outbox())
		if err != nil {
			return err
		}
		item := statusOf(s.Program, &st, adopted, filter)
		if s.JSON {
			return s.Document(item)
		}
		if err := item.print(s.Out); err != nil {
			return err
		}
		// The note comes below the numbers and is not in JSON: it is a guess about the operator, and no
		// state of the service.
		Unused, err := Unused(cmd.Context(), s)
		if Unused != "" {
			fmt.Fprint(s.Out, "\n"+Unused)
		}
		return err
	}
	return cmd
}
