package consumers

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/ops"
)

// New returns the commands "oncebox consumers".
func New(s *cli.Session) *cobra.Command {
	return cli.Group("consumers", "List consumers, and remove consumers that no longer exist", newConsumersList(s), newConsumersForget(s))
}

// newConsumersList reads only the database and, if its address is known, the broker. No process of the service has to
// answer, so the list works while the service is down.
func newConsumersList(s *cli.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the consumers with their topics, processes and connections", Args: cli.NoArgs,
		Long: `List the consumers that have run on this database: their topic, whether a process runs them and is connected to the broker, how many
messages wait, and why they last had no connection; oncebox stuck has the errors of handlers.

If ` + s.Brokers.Variables() + ` is set, the command asks the broker itself; otherwise it shows what the processes of the service last stored in the database.`,
		Example: "  oncebox consumers list\n  oncebox consumers list --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.ChooseBroker(); err != nil {
				return err
			}
			if err := s.OpenTables(cmd.Context()); err != nil {
				return err
			}
			view, err := s.ViewOfBroker(cmd.Context())
			if err != nil {
				return err
			}
			found, err := view.Consumers(cmd.Context(), ops.Filter{})
			if err != nil {
				return err
			}
			// Made and not nil, so that JSON has [] and scripts need not handle null.
			list := make([]Item, len(found))
			for n := range found {
				list[n] = ItemOf(&found[n])
			}
			return printConsumers(s, list)
		},
	}
}

// printConsumers prints a row for each process of each consumer and topic. A consumer without topics, such as a handler
// of inbox.Inbox.Wrap, has a single row.
func printConsumers(s *cli.Session, list []Item) error {
	if s.JSON {
		return s.Document(list)
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(s.Out, "No consumer has run on this database.")
		return err
	}
	rows := [][]string{{"CONSUMER", "TOPIC", "PROCESS", "STATE", "SINCE", "IN HAND", "AT BROKER", "LAST ERROR OF THE CONNECTION"}}
	for n := range list {
		c := &list[n]
		// A consumer of inbox.Inbox.Wrap gets its messages from the program itself, so oncebox knows no topic of it.
		if len(c.Topics) == 0 {
			rows = append(rows, []string{cli.Short(c.Consumer, 40), "", "", c.HowItRuns(), cli.At(c.SeenAt), "", "", ""})
		}
		for _, t := range c.Topics {
			rows = append(rows, c.rowsOf(&t)...)
		}
	}
	return cli.Columns(s.Out, rows)
}

// rowsOf returns the rows of a consumer at one topic. Without a process there is still a row, because messages may wait
// there.
func (c *Item) rowsOf(t *TopicItem) (rows [][]string) {
	// The sum over this one topic gives "?" and "-" the same meaning as in oncebox status.
	waits := (&Item{Topics: []TopicItem{*t}}).AtBroker()
	if len(t.Processes) == 0 {
		return [][]string{{cli.Short(c.Consumer, 40), cli.Short(t.Topic, 40), "none", c.HowItRuns(), "", "", waits, cli.Short(t.BacklogError, 200)}}
	}
	for _, p := range t.Processes {
		// The error may be older than the present state: it is kept after a reconnection, so its time is
		// shown beside it.
		failure := p.Error
		if failure != "" {
			failure = cli.At(p.FailedAt) + " " + failure
		}
		rows = append(rows, []string{
			cli.Short(c.Consumer, 40), cli.Short(t.Topic, 40), cli.Short(p.Name, 40), p.State, cli.At(&p.Since), strconv.Itoa(p.Unsettled), waits,
			cli.Short(failure, 200),
		})
	}
	return rows
}

func newConsumersForget(s *cli.Session) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "forget NAME", Short: "Remove a consumer that no longer exists",
		Args: cli.Takes(1, "give the name of one consumer; oncebox consumers list shows the names"),
		Long: `Remove a consumer that no longer exists: it is no longer listed as missing, another service may use its name, and without a broker no messages
are stored for it. Its parked messages and dead letters stay. The command refuses while a process runs the consumer.

The subscription at the broker stays and keeps messages. As soon as some wait, oncebox doctor names the command that removes it.`,
		Example: "  oncebox consumers forget mailer",
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := s.OpenTables(cmd.Context()); err != nil {
			return err
		}
		return forget(s, cmd, args[0], yes)
	}
	return cmd
}

// forget looks for the consumer first, so that a mistyped name is an error, and refuses a consumer that runs, because
// forgetting declares that it never runs again.
func forget(s *cli.Session, cmd *cobra.Command, name string, yes bool) error {
	known, err := s.Inbox().State().Consumers(cmd.Context())
	if err != nil {
		return err
	}
	found := false
	for n := range known {
		if known[n].Consumer != name {
			continue
		}
		if found = true; known[n].Runs {
			return cli.Exit(cli.ExitRefused, fmt.Errorf("a process runs the consumer %s: stop it first; oncebox consumers list shows which", name))
		}
	}
	if !found {
		return cli.Exit(cli.ExitNothing, fmt.Errorf("no consumer %s has run on this database; oncebox consumers list shows all that have run", name))
	}
	if err := s.Confirm(yes, "forget the consumer "+name+"?"); err != nil {
		return err
	}
	if err := s.Inbox().Forget(cmd.Context(), name); err != nil {
		return err
	}
	// Forget has no --by: it changes no event and no message, so there is nothing for the audit.
	if s.JSON {
		return s.Document(cli.Acted{Action: "forget", Consumer: name})
	}
	_, err = fmt.Fprintf(s.Out, "The consumer %s is forgotten.\n", name)
	return err
}
