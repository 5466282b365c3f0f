package consumers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/operator"
)

// newParkedRetry needs no reason, because a retry loses nothing: the message would be tried later anyway.
func newParkedRetry(s *cli.Session) *cobra.Command {
	var (
		f                parkedSelection
		by               operator.By
		all, yes, dryRun bool
		rate             float64
	)
	cmd := &cobra.Command{
		Use: "retry [ID...]", Short: "Try failed messages now, without waiting for the end of their pause",
		Long: `Try failed messages now, without waiting for the end of their pause. Give their ids, or flags that select them. ID is the
message_key that oncebox stuck prints for the first message of an ordering key; it needs --consumer. The messages behind it follow.`,
		Example: `  oncebox parked retry 0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e --consumer billing --by ann --why "the bank is back"
  oncebox parked retry --consumer billing --error "connection refused" --dry-run
  oncebox parked retry --consumer billing --rate 50 --by ann --why "the bank is back"
  oncebox parked retry --all --by ann`,
	}
	f.flags(cmd)
	flags := cmd.Flags()
	cli.DecisionFlags(flags, &by, &yes, cli.ButDryRun, cli.Optional)
	flags.BoolVar(&all, "all", false, "try all failed messages; not together with ids or flags that select")
	flags.BoolVar(&dryRun, "dry-run", false, "count only")
	flags.Float64Var(&rate, "rate", 0, "try at most this number per second, to protect the service and the systems that it calls (default: no limit)")
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		var errs []error
		if !dryRun {
			errs = append(errs, cli.NeedsActor(by.Actor))
		}
		// Without a selection an operator has to type --all. A forgotten flag must not retry everything.
		switch selects := len(ids) > 0 || !f.isEmpty(); {
		case !selects && !all:
			errs = append(errs, errors.New("nothing is selected: give ids, or flags such as --consumer, or --all"))
		case selects && all:
			errs = append(errs, errors.New("--all contradicts ids and flags that select: give one or the other"))
		case len(ids) > 0 && f.consumer == "":
			errs = append(errs, errors.New("--consumer is missing: name the consumer for which the message is parked"))
		}
		if rate < 0 {
			errs = append(errs, errors.New("--rate is below 0"))
		}
		if err := errors.Join(errs...); err != nil {
			return cli.Usage(cmd, err)
		}
		if err := s.OpenTables(cmd.Context()); err != nil {
			return err
		}
		if len(ids) > 0 {
			return retryEach(cmd.Context(), s, f.consumer, ids, by, yes, dryRun)
		}
		return retryMany(cmd.Context(), s, f.filter(), by, &operator.Bulk{Rate: rate, DryRun: dryRun}, yes)
	}
	return cmd
}

// RetryResult is the JSON output of parked retry for several messages. Scripts use the names, so they never change.
type RetryResult struct {
	Action   operator.Action `json:"action"`
	DryRun   bool            `json:"dry_run"`
	Messages int64           `json:"messages"`
}

// retryMany tries all failed messages that the filter selects. It counts them first, so that the operator confirms a
// number.
func retryMany(ctx context.Context, s *cli.Session, filter parked.Filter, by operator.By, bulk *operator.Bulk, yes bool) error {
	// Only the first message of a key can be tried; the messages behind it follow.
	// The messages of a key whose first message is dead wait for a decision about that one, so they are not selected.
	filter.State, filter.FirstOnly = parked.KeyFailed, true
	n, err := s.Inbox().Parked().Count(ctx, filter)
	switch {
	case err != nil:
		return err
	case n == 0:
		return cli.Exit(cli.ExitNothing, errors.New("no failed message matches the selection; nothing was done"))
	case bulk.DryRun:
		return printRetried(s, RetryResult{operator.Retry, true, n}, "would be tried at once")
	}
	if err := s.Confirm(yes, "retry "+cli.Several(n, "message", "messages")+" that failed?"); err != nil {
		return err
	}
	p := s.Progress("retried", n)
	bulk.Progress = p.Show
	done, err := s.Inbox().Parked().RetryAll(ctx, filter, by, bulk)
	p.End()
	if err != nil {
		// Transactions that were committed stay. Calling it again is safe, because retried messages are not selected
		// any more until they fail again.
		return fmt.Errorf("%w; %s before the error: run the command again for the others", err, cli.Several(done, "message was retried", "messages were "+
			"retried"))
	}
	return printRetried(s, RetryResult{operator.Retry, false, done}, "will be tried now")
}

func printRetried(s *cli.Session, r RetryResult, verb string) error {
	if s.JSON {
		return s.Document(r)
	}
	_, err := fmt.Fprintf(s.Out, "%s %s.\n", cli.Several(r.Messages, "message", "messages"), verb)
	return err
}

// retryEach tries single messages. It looks for all of them before it asks, so that a wrong id changes nothing.
func retryEach(ctx context.Context, s *cli.Session, consumer string, ids []string, by operator.By, yes, dryRun bool) error {
	refs := make([]operator.MessageRef, len(ids))
	for n, id := range ids {
		var err error
		if refs[n], err = firstParked(ctx, s, consumer, id); err != nil {
			return err
		}
	}
	if dryRun {
		return printRetried(s, RetryResult{operator.Retry, true, int64(len(refs))}, "would be tried at once")
	}
	// A single message is confirmed with its id, and its answer has the id too. That is also the form of
	// the JSON for scripts.
	if len(refs) == 1 {
		return decideParked(s, "retry", "is tried now", consumer, ids[0], yes, func() error { return s.Inbox().Parked().RetryNow(ctx, refs[0], by) })
	}
	if err := s.Confirm(yes, fmt.Sprintf("retry %d messages of consumer %s?", len(refs), consumer)); err != nil {
		return err
	}
	for n, ref := range refs {
		if err := s.Inbox().Parked().RetryNow(ctx, ref, by); err != nil {
			return fmt.Errorf("%w; %s before the error: run the command again for the others", err, cli.Several(n, "message was retried", "messages were "+
				"retried"))
		}
	}
	return printRetried(s, RetryResult{operator.Retry, false, int64(len(refs))}, "will be tried now")
}

func newParkedGiveUp(s *cli.Session) *cobra.Command {
	var (
		by       operator.By
		consumer string
		yes      bool
	)
	cmd := &cobra.Command{
		Use: "give-up ID", Short: "Stop trying a message and make it a dead letter now", Args: cli.ExactlyOneID,
		Long: "Stop trying a message and make it a dead letter now. ID is the message_key that oncebox stuck prints; the message has to be the first " +
			"of its ordering key.",
		Example: `  oncebox parked give-up 0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e --consumer billing --by ann --why "the customer is gone"`,
	}
	flags := cmd.Flags()
	cli.DecisionFlags(flags, &by, &yes, cli.Required, cli.Required)
	flags.StringVar(&consumer, "consumer", "", "the consumer (required)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		errs := []error{cli.NeedsActor(by.Actor)}
		if consumer == "" {
			errs = append(errs, errors.New("--consumer is missing: name the consumer for which the message is parked"))
		}
		// GiveUp deletes nothing, but the messages behind it may stop until somebody decides. The reason is
		// for the person who finds them.
		if strings.TrimSpace(by.Reason) == "" {
			errs = append(errs, errors.New("--why is missing: say why; the messages behind this one wait until the dead letter is replayed or discarded"))
		}
		if err := errors.Join(errs...); err != nil {
			return cli.Usage(cmd, err)
		}
		if err := s.OpenTables(cmd.Context()); err != nil {
			return err
		}
		ref, err := firstParked(cmd.Context(), s, consumer, args[0])
		if err != nil {
			return err
		}
		return decideParked(s, "give-up", "is a dead letter", consumer, args[0], yes, func() error {
			return s.Inbox().Parked().GiveUp(cmd.Context(), ref, by)
		})
	}
	return cmd
}

// decideParked asks for confirmation, and then calls do for one parked message.
func decideParked(s *cli.Session, name, done, consumer, id string, yes bool, do func() error) error {
	if err := s.Confirm(yes, name+" the message "+id+" of consumer "+consumer+"?"); err != nil {
		return err
	}
	// Between the search and this call a process may have handled the message. That is exit code "nothing
	// found" and not a failure.
	switch err := do(); {
	case errors.Is(err, parked.ErrNotParked):
		return cli.Exit(cli.ExitNothing, err)
	case err != nil:
		return err
	}
	if s.JSON {
		return s.Document(cli.Acted{Action: name, ID: id, Consumer: consumer})
	}
	_, err := fmt.Fprintf(s.Out, "The message %s %s.\n", id, done)
	return err
}

// firstParked searches the message among the first messages of the consumer's keys: only those can be tried
// or given up.
func firstParked(ctx context.Context, s *cli.Session, consumer, key string) (operator.MessageRef, error) {
	// The filter has no message key, so the pages of the consumer are read. With FirstOnly they have at
	// most one message per key.
	var after *parked.Message
	for {
		page, err := s.Inbox().Parked().List(ctx, parked.Filter{Consumer: consumer, FirstOnly: true}, after, cli.Most)
		if err != nil {
			return operator.MessageRef{}, err
		}
		for n := range page {
			// Both ids are accepted, because oncebox stuck prints the message key and other tools print the
			// id of the event.
			if page[n].Key.MessageKey == key || page[n].Envelope.ID == key {
				return page[n].Key, nil
			}
		}
		if len(page) < cli.Most {
			return operator.MessageRef{}, cli.Exit(cli.ExitNothing,
				fmt.Errorf("consumer %[2]s has no parked message %[1]s that is the first of its ordering key; oncebox stuck lists such "+
					"messages", key, consumer))
		}
		after = &page[len(page)-1]
	}
}
