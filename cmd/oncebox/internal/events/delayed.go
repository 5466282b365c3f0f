package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/delayed"
)

// NewDelayed returns the commands "oncebox delayed".
func NewDelayed(s *cli.Session) *cobra.Command {
	return cli.Group("delayed", "Delayed events whose time has not come "+
		"yet", newDelayedList(s), newDelayedAct(s, cancelDelayed), newDelayedAct(s, moveDelayed))
}

// DelayedEvent is an event in the JSON output of delayed list. Scripts use the names, so they never change.
type DelayedEvent struct {
	ID            string    `json:"id"`
	NotBefore     time.Time `json:"not_before"`
	Type          string    `json:"type"`
	Topic         string    `json:"topic"`
	Tenant        string    `json:"tenant"`
	AggregateType string    `json:"aggregate_type,omitempty"`
	AggregateID   string    `json:"aggregate_id,omitempty"`
	CreatedAt     time.Time `json:"created_at"`
}

func newDelayedList(s *cli.Session) *cobra.Command {
	var (
		filter delayed.Filter
		limit  int
	)
	cmd := &cobra.Command{
		Use: "list", Short: "List delayed events, ordered by the time at which they are published", Args: cli.NoArgs,
		Example: "  oncebox delayed list --tenant acme --aggregate-type order --aggregate-id 42",
	}
	flags := cmd.Flags()
	flags.StringVar(&filter.TenantID, "tenant", "", "only those of this tenant")
	flags.StringVar(&filter.AggregateType, "aggregate-type", "", "only those of aggregates of this type")
	flags.StringVar(&filter.AggregateID, "aggregate-id", "", "only those of the aggregate with this id")
	flags.IntVar(&limit, "limit", 100, "list at most this number")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.OpenList(cmd, limit, filter.Validate()); err != nil {
			return err
		}
		// One more than asked for shows whether there are more.
		page, err := s.Outbox().Delayed().List(cmd.Context(), s.DB, filter, nil, limit+1)
		if err != nil {
			return err
		}
		list := make([]DelayedEvent, min(len(page), limit))
		for n := range list {
			r := &page[n]
			list[n] = DelayedEvent{r.ID, r.Delivery.NotBefore, r.Type, r.Topic, r.TenantID, r.AggregateType, r.AggregateID, r.CreatedAt}
		}
		if err := printDelayed(s, list); err != nil {
			return err
		}
		if len(page) > limit {
			fmt.Fprintln(s.Errs, "There are more: a higher --limit lists them.")
		}
		return nil
	}
	return cmd
}

func printDelayed(s *cli.Session, list []DelayedEvent) error {
	header := []string{"DUE", "ID", "TYPE", "TOPIC", "TENANT", "AGGREGATE", "RECORDED"}
	return cli.List(s, list, "No delayed event waits.", header, func(e *DelayedEvent) []string {
		return []string{cli.Moment(e.NotBefore), e.ID, e.Type, e.Topic, e.Tenant, cli.Join(e.AggregateType, e.AggregateID), cli.Moment(e.CreatedAt)}
	})
}

// delayedDecision is an action on a delayed event, with the texts of its command.
type delayedDecision struct {
	name, short, done string
	example           string
	needsReason       bool
	needsTime         bool
	do                func(ctx context.Context, store *outbox.Store, id string, at time.Time, by operator.By) error
}

var (
	cancelDelayed = delayedDecision{
		name: "cancel", short: "Delete a delayed event before its time", done: "cancelled", needsReason: true,
		example: `  oncebox delayed cancel 0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e --by ann --why "sold out"`,
		do: func(ctx context.Context, store *outbox.Store, id string, _ time.Time, by operator.By) error {
			return store.Delayed().CancelByHand(ctx, id, by)
		},
	}
	moveDelayed = delayedDecision{
		name: "move", short: "Give a delayed event another time", done: "moved", needsTime: true,
		example: `  oncebox delayed move 0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e --to 90m --by ann
  oncebox delayed move 0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e --to 2026-12-01T08:00:00Z --by ann`,
		do: func(ctx context.Context, store *outbox.Store, id string, at time.Time, by operator.By) error {
			return store.Delayed().RescheduleByHand(ctx, id, at, by)
		},
	}
)

// newDelayedAct makes cancel and move from one frame. Only cancel needs a reason, because it deletes the event.
func newDelayedAct(s *cli.Session, d delayedDecision) *cobra.Command {
	var (
		by     operator.By
		tenant string
		to     string
		yes    bool
	)
	cmd := &cobra.Command{Use: d.name + " ID", Short: d.short, Args: cli.ExactlyOneID, Example: d.example}
	flags := cmd.Flags()
	cli.DecisionFlags(flags, &by, &yes, cli.Required, cli.Optional)
	flags.StringVar(&tenant, "tenant", "", "the tenant of the event (default: that of the service, ONCEBOX_DEFAULT_TENANT_ID)")
	if d.needsTime {
		flags.StringVar(&to, "to", "", "the new time: "+ops.TimeForms+" from now, 0m for now (required)")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		at, err := d.check(to, by, time.Now())
		if err != nil {
			return cli.Usage(cmd, err)
		}
		if err := s.OpenTables(cmd.Context()); err != nil {
			return err
		}
		// The event is not looked up before the question: it may leave at any time, so only the change itself can say
		// whether it was still there.
		if err := s.Confirm(yes, d.name+" the delayed event "+args[0]+"?"); err != nil {
			return err
		}
		ctx := cmd.Context()
		if tenant != "" {
			ctx = event.WithTenant(ctx, tenant)
		}
		switch err := d.do(ctx, s.Outbox(), args[0], at, by); {
		case errors.Is(err, delayed.ErrTooLate):
			// The library cannot distinguish the two cases: it looks only among events of the tenant.
			return cli.Exit(cli.ExitNothing, fmt.Errorf("%w; if the event belongs to another tenant, name it with --tenant", err))
		case err != nil:
			return err
		}
		if s.JSON {
			return s.Document(cli.Acted{Action: d.name, ID: args[0]})
		}
		_, err = fmt.Fprintf(s.Out, "The event %s was %s.\n", args[0], d.done)
		return err
	}
	return cmd
}

// check reports missing flags before the command asks the database anything, and returns the new time. A duration
// counts from now, by the clock of this machine.
func (d *delayedDecision) check(to string, by operator.By, now time.Time) (at time.Time, err error) {
	errs := []error{cli.NeedsActor(by.Actor)}
	if d.needsReason && by.Reason == "" {
		errs = append(errs, errors.New("--why is missing: say why; a cancelled event cannot be brought back"))
	}
	if d.needsTime {
		if at, err = ops.TimeAhead(to, now); err != nil {
			errs = append(errs, fmt.Errorf("--to %w", err))
		} else if at.IsZero() {
			errs = append(errs, errors.New("--to is missing: give the new time as "+ops.TimeForms))
		}
	}
	return at, errors.Join(errs...)
}
