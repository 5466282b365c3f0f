package consumers

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/inbox/consumers"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/operator"
)

// consumerAction is an action on a consumer, with the texts of its command.
type consumerAction struct {
	action                     operator.Action
	short, long, example, done string
	// why ends the help text of --why: cli.Optional, or a text that ends with cli.Required.
	why string
	// flags adds the flags that only this action has; nil: none.
	flags func(*pflag.FlagSet)
	do    func(cmd *cobra.Command, all *consumers.Consumers, name string, by operator.By) error
	// rest returns a text about what is left of the consumer; nil: nothing is.
	rest func(*state.Consumer) string
}

// ActionResult is the JSON output of consumers pause, resume and forget. Scripts use the names, so they never change.
type ActionResult struct {
	Action   operator.Action `json:"action"`
	Consumer string          `json:"consumer"`
}

func newConsumersPause(s *cli.Session) *cobra.Command {
	var limit time.Duration
	return newConsumersAct(s, &consumerAction{
		action: operator.Pause, short: "Stop the handling of a consumer's messages in all processes", done: "paused", why: " and the list" + cli.Required,
		long: `Stop the handling of a consumer's messages in all processes, until oncebox consumers resume, or for the time of --for.
Nothing is lost, the order of each key is kept, and other consumers go on. Running handlers end. Messages wait at the broker or, if they
are parked, in the database; no try is counted meanwhile. Processes notice it within about a second, and processes that start later obey it, too.`,
		example: `  oncebox consumers pause mailer --by ann --why "smtp is down"
  oncebox consumers pause mailer --for 2h --by ann --why "smtp is down until 6:00"`,
		flags: func(flags *pflag.FlagSet) {
			flags.DurationVar(&limit, "for", 0, "resume the consumer by itself after this time (default: it stays paused)")
		},
		do: func(cmd *cobra.Command, all *consumers.Consumers, name string, by operator.By) error {
			return all.Pause(cmd.Context(), name, limit, by)
		},
	})
}

func newConsumersResume(s *cli.Session) *cobra.Command {
	return newConsumersAct(s, &consumerAction{
		action: operator.Resume, short: "Handle a paused consumer's messages again", done: "resumed",
		long:    "Handle the messages of a paused consumer again, in all processes. Messages of one ordering key keep their order.",
		example: `  oncebox consumers resume mailer --by ann --why "smtp is back"`,
		do: func(cmd *cobra.Command, all *consumers.Consumers, name string, by operator.By) error {
			return all.Resume(cmd.Context(), name, by)
		},
	})
}

func newConsumersForget(s *cli.Session) *cobra.Command {
	return newConsumersAct(s, &consumerAction{
		action: operator.Forget, short: "Remove a consumer that no longer exists", done: "forgotten",
		long: `Remove a consumer that no longer exists: it is no longer listed as missing, another service may use its name, and without a broker no messages
are stored for it. Its parked messages and dead letters stay. The command refuses while a process runs the consumer.

The subscription at the broker stays and keeps messages. As soon as some wait, oncebox doctor names the command that removes it.`,
		example: `  oncebox consumers forget mailer --by ann --why "the service was switched off"`,
		do: func(cmd *cobra.Command, all *consumers.Consumers, name string, by operator.By) error {
			return all.Forget(cmd.Context(), name, by)
		},
		rest: leftAtBroker,
	})
}

// decision has the flags that all actions share.
type decision struct {
	by  operator.By
	yes bool
}

// newConsumersAct makes a command from one frame. It looks for the consumer before it asks, so that a mistyped name is an error.
func newConsumersAct(s *cli.Session, a *consumerAction) *cobra.Command {
	d := &decision{}
	cmd := &cobra.Command{
		Use: string(a.action) + " NAME", Short: a.short, Long: a.long, Example: a.example,
		Args: cli.Takes(1, "give the name of one consumer; oncebox consumers list shows the names"),
	}
	cli.DecisionFlags(cmd.Flags(), &d.by, &d.yes, cli.Required, a.why)
	if a.flags != nil {
		a.flags(cmd.Flags())
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		errs := []error{cli.NeedsActor(d.by.Actor)}
		if a.why != cli.Optional && strings.TrimSpace(d.by.Reason) == "" {
			errs = append(errs, errors.New("--why is missing: say why; people who find the consumer paused read it"))
		}
		if err := errors.Join(errs...); err != nil {
			return cli.Usage(cmd, err)
		}
		if err := s.OpenTables(cmd.Context()); err != nil {
			return err
		}
		return act(s, cmd, a, args[0], d)
	}
	return cmd
}

func act(s *cli.Session, cmd *cobra.Command, a *consumerAction, name string, d *decision) error {
	all, err := s.Inbox().State().Consumers(cmd.Context())
	if err != nil {
		return err
	}
	found := findConsumer(all, name)
	if found == nil {
		return cli.Exit(cli.ExitNothing, fmt.Errorf("no consumer %s has run on this database; oncebox consumers list shows all that have run",
			cli.Printable(name)))
	}
	if a.action == operator.Forget && found.Runs {
		return cli.Exit(cli.ExitRefused, fmt.Errorf("a process runs the consumer %s: stop it first; oncebox consumers list shows which", name))
	}
	if err := s.Confirm(d.yes, fmt.Sprintf("%s the consumer %s?", a.action, name)); err != nil {
		return err
	}
	err = a.do(cmd, s.Inbox().Consumers(), name, d.by)
	// The consumer is in the wanted state already, perhaps by another operator. A script that repeats the command can ignore this exit code.
	switch {
	case errors.Is(err, consumers.ErrPaused), errors.Is(err, consumers.ErrNotPaused), errors.Is(err, consumers.ErrUnknown):
		return cli.Exit(cli.ExitNothing, err)
	case errors.Is(err, consumers.ErrRuns):
		return cli.Exit(cli.ExitRefused, err)
	case err != nil:
		return err
	case s.JSON:
		return s.Document(ActionResult{a.action, name})
	}
	rest := ""
	if a.rest != nil {
		rest = a.rest(found)
	}
	_, err = fmt.Fprintf(s.Out, "The consumer %s is %s.\n%s", name, a.done, rest)
	return err
}

// findConsumer returns the consumer that has this name, or is a generation of this read model; nil if there is none.
func findConsumer(all []state.Consumer, name string) *state.Consumer {
	for n := range all {
		if all[n].Consumer == name || state.Family(all[n].Consumer) == name {
			return &all[n]
		}
	}
	return nil
}

// leftAtBroker names the subscriptions that a broker has had for the consumer.
func leftAtBroker(c *state.Consumer) string {
	var text strings.Builder
	for _, t := range c.Topics {
		if !t.Waiting.At.IsZero() && !t.Waiting.Missing {
			fmt.Fprintf(&text, "Its subscription to the topic %s stays at the broker, with %d messages when the broker was last asked.\n",
				cli.Short(t.Topic, 80), t.Waiting.Messages)
		}
	}
	return text.String()
}
