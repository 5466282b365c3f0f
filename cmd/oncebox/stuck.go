package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/ops"
)

// stuckItem is what stuck prints as JSON. The names stay.
type stuckItem struct {
	Kind       ops.Kind   `json:"kind"`
	Since      *time.Time `json:"since,omitempty"`
	ID         string     `json:"id,omitempty"`
	MessageKey string     `json:"message_key,omitempty"`
	Relay      string     `json:"relay,omitempty"`
	Consumer   string     `json:"consumer,omitempty"`
	Type       string     `json:"type,omitempty"`
	Topic      string     `json:"topic,omitempty"`
	Tenant     string     `json:"tenant,omitempty"`
	Key        string     `json:"key,omitempty"`
	Holds      bool       `json:"holds"`
	Step       string     `json:"step,omitempty"`
	Attempts   int        `json:"attempts,omitempty"`
	Next       *time.Time `json:"next,omitempty"`
	Error      string     `json:"error,omitempty"`
	// Actions are what can be done about it, Do is what to type next, or to do.
	Actions []ops.Action `json:"actions"`
	Do      string       `json:"do"`
}

func newStuck(s *session) *cobra.Command {
	var (
		filter ops.Filter
		limit  int
	)
	cmd := &cobra.Command{
		Use: "stuck", Short: "List what is stuck: events, messages, keys, and parts that do not run", Args: noArgs,
		Long: `List what waits for longer than its turn, or for a decision, over outbox, inbox and idempotency keys: since when, why, and what to type next.

Exit code 0: nothing is stuck. 3: something is.`,
		Example: `  oncebox stuck
  oncebox stuck --consumer billing --json`,
	}
	flags := cmd.Flags()
	flags.StringVar(&filter.Tenant, "tenant", "", "only what is of this tenant")
	flags.StringVar(&filter.Topic, "topic", "", "only what is of this topic")
	flags.StringVar(&filter.Consumer, "consumer", "", "only what is at this consumer")
	flags.IntVar(&limit, "limit", 100, "list at most so many of each kind")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if limit < 1 {
			return usage(cmd, errors.New("--limit is below 1"))
		}
		if err := s.openTables(cmd.Context()); err != nil {
			return err
		}
		found, err := s.view().Stuck(cmd.Context(), filter, limit)
		if err != nil {
			return err
		}
		list := make([]stuckItem, len(found))
		for n := range found {
			list[n] = itemOf(&found[n])
		}
		if err := s.printStuck(list); err != nil || len(list) == 0 {
			return err
		}
		return &exitError{exitFindings, errors.New(several(len(list), "thing is stuck", "things are stuck"))}
	}
	return cmd
}

func itemOf(f *ops.Stuck) stuckItem {
	return stuckItem{
		Kind: f.Kind, Since: timeOf(f.Since), ID: f.ID, MessageKey: f.MessageKey, Relay: f.Relay, Consumer: f.Consumer, Type: f.Type,
		Topic: f.Topic, Tenant: f.Tenant, Key: f.Key, Holds: f.Holds, Step: f.Step, Attempts: f.Attempts, Next: timeOf(f.Next), Error: f.Error,
		Actions: append([]ops.Action{}, f.Kind.Actions()...), Do: next(f),
	}
}

func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// next is what an operator does about it.
func next(f *ops.Stuck) string {
	switch f.Kind {
	case ops.RelayMissing:
		return "start a process of the service that runs its relay, or: oncebox relay"
	case ops.RelayLate:
		return "oncebox doctor asks the broker, with the variables of the service; the log of the relay says what fails"
	case ops.ConsumerMissing:
		if f.Topic != "" {
			return "start a process of the service that runs the consumer " + f.Consumer + " on the topic " + f.Topic
		}
		return "start a process of the service that runs the consumer " + f.Consumer
	case ops.EventDead:
		return "oncebox dead show " + f.ID + " --outbox"
	case ops.MessageDead:
		return "oncebox dead show " + f.MessageKey + " --consumer " + f.Consumer
	case ops.EventFailing:
		return "mend the cause; it is tried again by itself"
	case ops.MessageFailing:
		return "mend the cause, then: oncebox parked retry " + f.MessageKey + " --consumer " + f.Consumer
	case ops.StepUnknown:
		return "find out whether the step was done, then: oncebox keys resolve " + f.ID + " " + f.Step
	case ops.TenantPaused:
		return "when its events may leave: oncebox tenants resume " + f.Tenant
	default:
		return ""
	}
}

func (s *session) printStuck(list []stuckItem) error {
	if s.json {
		return s.document(list)
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(s.out, "Nothing is stuck.")
		return err
	}
	for n := range list {
		i := &list[n]
		what := i.Type
		switch {
		case i.Kind == ops.RelayMissing:
			what = "events wait, and no process publishes them"
		case i.Kind == ops.RelayLate:
			what = "events wait, although a relay has their lanes: the broker is in trouble, or the relay does not keep up"
		case i.Kind == ops.StepUnknown:
			what = "requests with the key are refused"
		case i.Kind == ops.TenantPaused:
			what = "its events are not published"
		case i.Consumer != "":
			what = join(what, "at consumer "+i.Consumer)
		}
		behind := ""
		if i.Holds {
			behind = "what comes under the key " + i.Key + " waits behind it"
		}
		tries := ""
		if i.Attempts > 0 {
			tries = strconv.Itoa(i.Attempts)
		}
		relay := i.Relay
		if relay != "" && i.Kind == ops.RelayMissing {
			relay += " had the lanes, and vanished"
		}
		if n > 0 {
			fmt.Fprintln(s.out)
		}
		err := s.pairs(string(i.Kind), what, "since", at(i.Since), "relay", relay, "id", i.ID, "topic", i.Topic, "tenant", i.Tenant, "step", i.Step,
			"behind it", behind, "tries", tries, "next try", at(i.Next), "error", short(i.Error, 200), "to do", i.Do)
		if err != nil {
			return err
		}
	}
	return nil
}

func at(t *time.Time) string {
	if t == nil {
		return ""
	}
	return moment(*t)
}
