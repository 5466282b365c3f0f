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
	return cli.Group("consumers", "List consumers, pause and resume them, and remove consumers that no longer exist",
		newConsumersList(s), newConsumersPause(s), newConsumersResume(s), newConsumersForget(s))
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
	if err := cli.Columns(s.Out, rows); err != nil {
		return err
	}
	for n := range list {
		if text := list[n].PausedText(); text != "" {
			if _, err := fmt.Fprintf(s.Out, "%s is %s\n", cli.Short(list[n].Consumer, 40), text); err != nil {
				return err
			}
		}
	}
	return nil
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
