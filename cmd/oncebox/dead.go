package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
)

func newDead(s *session) *cobra.Command {
	return group("dead", "Dead letters: events that could not be published, and messages that consumers gave up",
		newDeadList(s), newDeadShow(s), newDeadAct(s, replay), newDeadAct(s, discard), newDeadEdit(s))
}

// selection is which dead letters a command is about.
type selection struct {
	outboxOnly, inboxOnly               bool
	consumer, tenant, topic, kind, text string
	from, before                        string
	id                                  string

	diedFrom, diedBefore time.Time
}

func (f *selection) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.outboxOnly, "outbox", false, "only events that could not be published")
	flags.BoolVar(&f.inboxOnly, "inbox", false, "only messages that consumers gave up")
	flags.StringVar(&f.consumer, "consumer", "", "only messages that this consumer gave up")
	flags.StringVar(&f.tenant, "tenant", "", "only those of this tenant")
	flags.StringVar(&f.topic, "topic", "", "only those of this topic")
	flags.StringVar(&f.kind, "type", "", "only those of this event type")
	flags.StringVar(&f.text, "error", "", "only those whose error contains this text, as it is written there")
	flags.StringVar(&f.from, "died-from", "", "only those that died at this time or later: "+ops.TimeForms+" ago")
	flags.StringVar(&f.before, "died-before", "", "only those that died before this time, in the same forms")
}

// isEmpty says that it selects all.
func (f *selection) isEmpty() bool {
	return *f == selection{outboxOnly: f.outboxOnly, inboxOnly: f.inboxOnly}
}

// complete reads the times, and finds what contradicts itself.
func (f *selection) complete(now time.Time) error {
	var errs []error
	if f.outboxOnly && (f.inboxOnly || f.consumer != "") {
		errs = append(errs, errors.New("--outbox contradicts --inbox and --consumer"))
	}
	for _, t := range []struct {
		flag, text string
		to         *time.Time
	}{{"--died-from", f.from, &f.diedFrom}, {"--died-before", f.before, &f.diedBefore}} {
		at, err := ops.TimeAgo(t.text, now)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %w", t.flag, err))
		}
		*t.to = at
	}
	if f.id != "" && uuid.Validate(f.id) != nil {
		errs = append(errs, fmt.Errorf("%q is no id: ids are UUIDs, as dead list shows them", f.id))
	}
	return errors.Join(errs...)
}

func (f *selection) ofOutbox() bool { return !f.inboxOnly && f.consumer == "" }
func (f *selection) ofInbox() bool  { return !f.outboxOnly }

func (f *selection) filter() operator.DeadFilter {
	return operator.DeadFilter{
		Consumer: f.consumer, TenantID: f.tenant, Topic: f.topic, Type: f.kind, ID: f.id, Error: f.text,
		DiedFrom: f.diedFrom, DiedBefore: f.diedBefore,
	}
}

// counts are how many dead letters were selected or treated.
type counts struct {
	Outbox int64 `json:"outbox"`
	Inbox  int64 `json:"inbox"`
}

func (c counts) total() int64 { return c.Outbox + c.Inbox }

func (c counts) String() string {
	return fmt.Sprintf("%d of the outbox, %d of consumers", c.Outbox, c.Inbox)
}

// count counts what is selected.
func (s *session) count(ctx context.Context, f *selection) (c counts, err error) {
	if f.ofOutbox() {
		if c.Outbox, err = s.outbox().CountDead(ctx, f.filter()); err != nil {
			return c, err
		}
	}
	if f.ofInbox() {
		c.Inbox, err = s.inbox().CountDead(ctx, f.filter())
	}
	return c, err
}

// letters reads at most limit of the selected dead letters, the oldest first.
func (s *session) letters(ctx context.Context, f *selection, limit int) ([]letter, error) {
	var list []letter
	if f.ofOutbox() {
		page, err := s.outbox().Dead(ctx, f.filter(), nil, limit)
		if err != nil {
			return nil, err
		}
		for n := range page {
			list = append(list, outboxLetter(&page[n]))
		}
	}
	if f.ofInbox() {
		page, err := s.inbox().Dead(ctx, f.filter(), nil, limit)
		if err != nil {
			return nil, err
		}
		for n := range page {
			list = append(list, inboxLetter(&page[n]))
		}
	}
	return list, nil
}
