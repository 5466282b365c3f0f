package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/ops"
)

func newConsumers(s *session) *cobra.Command {
	return group("consumers", "Consumers: which run, what waits for them, and those that are gone", newConsumersList(s), newConsumersForget(s))
}

func newConsumersList(s *session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the consumers with their topics, processes and connections", Args: noArgs,
		Long: `List the consumers that have run on this database: at which topic, whether a process runs them and is connected to the broker, what waits there,
and why they last had no connection; oncebox stuck has the errors of handlers.

With ONCEBOX_PULSAR_URL set it asks the broker itself; otherwise it shows what the processes of the service have written down.`,
		Example: "  oncebox consumers list\n  oncebox consumers list --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.openTables(cmd.Context()); err != nil {
				return err
			}
			view, err := s.viewOfBroker()
			if err != nil {
				return err
			}
			found, err := view.Consumers(cmd.Context(), ops.Filter{})
			if err != nil {
				return err
			}
			list := make([]consumerItem, len(found))
			for n := range found {
				list[n] = consumerOf(&found[n])
			}
			return s.printConsumers(list)
		},
	}
}

func (s *session) printConsumers(list []consumerItem) error {
	if s.json {
		return s.document(list)
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(s.out, "No consumer has run on this database.")
		return err
	}
	rows := [][]string{{"CONSUMER", "TOPIC", "PROCESS", "STATE", "SINCE", "IN HAND", "AT BROKER", "LAST ERROR OF THE CONNECTION"}}
	for n := range list {
		c := &list[n]
		if len(c.Topics) == 0 {
			rows = append(rows, []string{short(c.Consumer, 40), "", "", c.runs(), at(c.SeenAt), "", "", ""})
		}
		for _, t := range c.Topics {
			rows = append(rows, c.rowsOf(&t)...)
		}
	}
	return columns(s.out, rows)
}

func (c *consumerItem) rowsOf(t *topicItem) (rows [][]string) {
	waits := (&consumerItem{Topics: []topicItem{*t}}).backlog()
	if len(t.Processes) == 0 {
		return [][]string{{short(c.Consumer, 40), short(t.Topic, 40), "none", c.runs(), "", "", waits, short(t.BacklogError, 200)}}
	}
	for _, p := range t.Processes {
		failure := p.Error
		if failure != "" {
			failure = at(p.FailedAt) + " " + failure
		}
		rows = append(rows, []string{
			short(c.Consumer, 40), short(t.Topic, 40), short(p.Name, 40), p.State, at(&p.Since), strconv.Itoa(p.Unsettled), waits, short(failure, 200),
		})
	}
	return rows
}

func newConsumersForget(s *session) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "forget NAME", Short: "Say that a consumer is gone for good", Args: cobra.ArbitraryArgs,
		Long: `Say that a consumer is gone for good: it is not listed as missing any more, another service may use its name, and without a broker no messages
are stored for it. What is parked or dead stays. It is refused while a process runs the consumer.

Its subscription at the broker stays, and keeps messages: remove it with pulsar-admin topics unsubscribe.`,
		Example: "  oncebox consumers forget mailer",
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage(cmd, errors.New("give the name of one consumer: oncebox consumers list shows them"))
		}
		if err := s.openTables(cmd.Context()); err != nil {
			return err
		}
		return s.forget(cmd, args[0], yes)
	}
	return cmd
}

func (s *session) forget(cmd *cobra.Command, name string, yes bool) error {
	known, err := s.inbox().State().Consumers(cmd.Context())
	if err != nil {
		return err
	}
	found := false
	for n := range known {
		if known[n].Consumer != name {
			continue
		}
		if found = true; known[n].Runs {
			return &exitError{exitRefused, fmt.Errorf("a process runs the consumer %s: stop it first; oncebox consumers list shows which", name)}
		}
	}
	if !found {
		return &exitError{exitNothing, fmt.Errorf("no consumer %s has run on this database; oncebox consumers list shows those that have", name)}
	}
	if err := s.confirm(yes, "forget the consumer "+name+"?"); err != nil {
		return err
	}
	if err := s.inbox().Forget(cmd.Context(), name); err != nil {
		return err
	}
	if s.json {
		return s.document(acted{Action: "forget", Consumer: name})
	}
	_, err = fmt.Fprintf(s.out, "The consumer %s is forgotten.\n", name)
	return err
}
