package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/outbox"
)

func newDelayed(s *session) *cobra.Command {
	return group("delayed", "Delayed events that wait for their time", newDelayedList(s), newDelayedAct(s, cancelDelayed), newDelayedAct(s, moveDelayed))
}

// delayedEvent is what list prints as JSON. The names stay.
type delayedEvent struct {
	ID            string    `json:"id"`
	NotBefore     time.Time `json:"not_before"`
	Type          string    `json:"type"`
	Topic         string    `json:"topic"`
	Tenant        string    `json:"tenant"`
	AggregateType string    `json:"aggregate_type,omitempty"`
	AggregateID   string    `json:"aggregate_id,omitempty"`
	CreatedAt     time.Time `json:"created_at"`
}

func newDelayedList(s *session) *cobra.Command {
	var (
		filter outbox.DelayedFilter
		limit  int
	)
	cmd := &cobra.Command{
		Use: "list", Short: "List delayed events, those first whose time comes first", Args: noArgs,
		Example: "  oncebox delayed list --tenant acme --aggregate-type order --aggregate-id 42",
	}
	flags := cmd.Flags()
	flags.StringVar(&filter.TenantID, "tenant", "", "only those of this tenant")
	flags.StringVar(&filter.AggregateType, "aggregate-type", "", "only those of aggregates of this type")
	flags.StringVar(&filter.AggregateID, "aggregate-id", "", "only those of the aggregate with this id")
	flags.IntVar(&limit, "limit", 100, "list at most so many")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if limit < 1 {
			return usage(cmd, errors.New("--limit is below 1"))
		}
		if err := filter.Validate(); err != nil {
			return usage(cmd, err)
		}
		if err := s.openTables(cmd.Context()); err != nil {
			return err
		}
		page, err := s.outbox().Delayed(cmd.Context(), s.db, filter, nil, limit+1)
		if err != nil {
			return err
		}
		list := make([]delayedEvent, min(len(page), limit))
		for n := range list {
			r := &page[n]
			list[n] = delayedEvent{r.ID, r.Delivery.NotBefore, r.Type, r.Topic, r.TenantID, r.AggregateType, r.AggregateID, r.CreatedAt}
		}
		if err := s.printDelayed(list); err != nil {
			return err
		}
		if len(page) > limit {
			fmt.Fprintln(s.errs, "There are more: --limit lists more.")
		}
		return nil
	}
	return cmd
}

func (s *session) printDelayed(list []delayedEvent) error {
	if s.json {
		return s.document(list)
	}
	if len(list) == 0 {
		fmt.Fprintln(s.errs, "No delayed event waits.")
		return nil
	}
	rows := make([][]string, len(list))
	for n, e := range list {
		rows[n] = []string{moment(e.NotBefore), e.ID, e.Type, e.Topic, e.Tenant, join(e.AggregateType, e.AggregateID), moment(e.CreatedAt)}
	}
	return s.table([]string{"DUE", "ID", "TYPE", "TOPIC", "TENANT", "AGGREGATE", "RECORDED"}, rows)
}

// delayedDeed is what can be done with a delayed event.
type delayedDeed struct {
	name, short, done string
	example           string
	needsReason       bool
	needsTime         bool
	do                func(ctx context.Context, store *outbox.Store, id string, at time.Time, by operator.By) error
}

var (
	cancelDelayed = delayedDeed{
		name: "cancel", short: "Delete a delayed event before its time", done: "cancelled", needsReason: true,
		example: `  oncebox delayed cancel 0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e --by ann --why "sold out"`,
		do: func(ctx context.Context, store *outbox.Store, id string, _ time.Time, by operator.By) error {
			return store.CancelDelayed(ctx, id, by)
		},
	}
	moveDelayed = delayedDeed{
		name: "move", short: "Give a delayed event another time", done: "moved", needsTime: true,
		example: `  oncebox delayed move 0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e --to 90m --by ann
  oncebox delayed move 0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e --to 2026-12-01T08:00:00Z --by ann`,
		do: func(ctx context.Context, store *outbox.Store, id string, at time.Time, by operator.By) error {
			return store.MoveDelayed(ctx, id, at, by)
		},
	}
)

func newDelayedAct(s *session, d delayedDeed) *cobra.Command {
	var (
		by     operator.By
		tenant string
		to     string
		yes    bool
	)
	cmd := &cobra.Command{Use: d.name + " ID", Short: d.short, Args: exactlyOneID, Example: d.example}
	flags := cmd.Flags()
	flags.StringVar(&by.Actor, "by", "", "who decides: a login or an address, for the audit (required)")
	flags.StringVar(&by.Reason, "why", "", "why, for the audit")
	flags.StringVar(&tenant, "tenant", "", "the tenant of the event (default: that of the service, ONCEBOX_DEFAULT_TENANT_ID)")
	flags.BoolVar(&yes, "yes", false, "do not ask")
	if d.needsTime {
		flags.StringVar(&to, "to", "", "the new time: "+ops.TimeForms+" from now, 0m for now (required)")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		at, err := d.check(to, by, time.Now())
		if err != nil {
			return usage(cmd, err)
		}
		if err := s.openTables(cmd.Context()); err != nil {
			return err
		}
		if err := s.confirm(yes, d.name+" the delayed event "+args[0]+"?"); err != nil {
			return err
		}
		ctx := cmd.Context()
		if tenant != "" {
			ctx = event.WithTenant(ctx, tenant)
		}
		switch err := d.do(ctx, s.outbox(), args[0], at, by); {
		case errors.Is(err, outbox.ErrTooLate):
			return &exitError{exitNothing, fmt.Errorf("%w; an event of another tenant needs --tenant", err)}
		case err != nil:
			return err
		}
		if s.json {
			return s.document(acted{Action: d.name, ID: args[0]})
		}
		_, err = fmt.Fprintf(s.out, "The event %s was %s.\n", args[0], d.done)
		return err
	}
	return cmd
}

// check finds what is missing before anything is asked of the database, and returns the new time.
func (d *delayedDeed) check(to string, by operator.By, now time.Time) (at time.Time, err error) {
	errs := []error{needsActor(by.Actor)}
	if d.needsReason && by.Reason == "" {
		errs = append(errs, errors.New("--why is missing: what is deleted is gone, say why"))
	}
	if d.needsTime {
		if at, err = ops.TimeAhead(to, now); err != nil {
			errs = append(errs, fmt.Errorf("--to %w", err))
		} else if at.IsZero() {
			errs = append(errs, errors.New("--to is missing: give "+ops.TimeForms))
		}
	}
	return at, errors.Join(errs...)
}
