package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/inbox"
)

func newParked(s *session) *cobra.Command {
	return group("parked", "Messages that failed and are tried again", newParkedAct(s, retryNow), newParkedAct(s, giveUp))
}

// parkedDeed is what can be done with a parked message.
type parkedDeed struct {
	name, short, done string
	needsReason       bool
	do                func(context.Context, *inbox.Inbox, inbox.MessageRef, inbox.By) error
}

var (
	retryNow = parkedDeed{
		name: "retry", short: "Have a message tried at once, and not only when its pause is over", done: "is tried now",
		do: func(ctx context.Context, box *inbox.Inbox, ref inbox.MessageRef, by inbox.By) error {
			return box.RetryNow(ctx, ref, by)
		},
	}
	giveUp = parkedDeed{
		name: "give-up", short: "Make a dead letter of a message at once", done: "is a dead letter", needsReason: true,
		do: func(ctx context.Context, box *inbox.Inbox, ref inbox.MessageRef, by inbox.By) error {
			return box.GiveUp(ctx, ref, by)
		},
	}
)

func newParkedAct(s *session, d parkedDeed) *cobra.Command {
	var (
		by       inbox.By
		consumer string
		yes      bool
	)
	cmd := &cobra.Command{
		Use: d.name + " ID", Short: d.short, Args: exactlyOneID,
		Long:    d.short + ". ID is the message_key that oncebox stuck prints; the message has to be the first of its key.",
		Example: "  oncebox parked " + d.name + " 0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e --consumer billing --by ann --why \"the bank is back\"",
	}
	flags := cmd.Flags()
	flags.StringVar(&by.Actor, "by", "", "who decides: a login or an address, for the audit (required)")
	flags.StringVar(&by.Reason, "why", "", "why, for the audit")
	flags.StringVar(&consumer, "consumer", "", "the consumer (required)")
	flags.BoolVar(&yes, "yes", false, "do not ask")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		errs := []error{needsActor(by.Actor)}
		if consumer == "" {
			errs = append(errs, errors.New("--consumer is missing: a message is parked for a consumer"))
		}
		if d.needsReason && by.Reason == "" {
			errs = append(errs, errors.New("--why is missing: what is behind the message waits for a decision, say why"))
		}
		if err := errors.Join(errs...); err != nil {
			return usage(cmd, err)
		}
		if err := s.openTables(cmd.Context()); err != nil {
			return err
		}
		ref, err := s.firstParked(cmd.Context(), consumer, args[0])
		if err != nil {
			return err
		}
		if err := s.confirm(yes, d.name+" the message "+args[0]+" of consumer "+consumer+"?"); err != nil {
			return err
		}
		switch err := d.do(cmd.Context(), s.inbox(), ref, by); {
		case errors.Is(err, inbox.ErrNotParked):
			return &exitError{exitNothing, err}
		case err != nil:
			return err
		}
		if s.json {
			return s.document(acted{Action: d.name, ID: args[0], Consumer: consumer})
		}
		_, err = fmt.Fprintf(s.out, "The message %s %s.\n", args[0], d.done)
		return err
	}
	return cmd
}

// firstParked looks for the message among the first ones of the consumer's keys.
func (s *session) firstParked(ctx context.Context, consumer, key string) (inbox.MessageRef, error) {
	var after *inbox.Parked
	for {
		page, err := s.inbox().Parked(ctx, inbox.ParkedFilter{Consumer: consumer, FirstOnly: true}, after, most)
		if err != nil {
			return inbox.MessageRef{}, err
		}
		for n := range page {
			if page[n].Key.MessageKey == key || page[n].Envelope.ID == key {
				return page[n].Key, nil
			}
		}
		if len(page) < most {
			return inbox.MessageRef{}, &exitError{exitNothing,
				fmt.Errorf("no message %s is the first of a key of consumer %s; see oncebox stuck", key, consumer)}
		}
		after = &page[len(page)-1]
	}
}
