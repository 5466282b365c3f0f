package dead

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
)

// New returns the commands.
func New(s *cli.Session) *cobra.Command {
	return cli.Group("dead", "Dead letters: events that could not be published, and messages that consumers gave up",
		newDeadList(s), newDeadShow(s), newDeadAct(s, &replay), newDeadAct(s, &discard), newDeadEdit(s))
}

// selection is the part of the dead letters that a command is about. Its flags are those of every command
// of this group.
type selection struct {
	ops.Selection

	outboxOnly, inboxOnly bool
	filter                operator.DeadFilter
}

func (f *selection) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.outboxOnly, "outbox", false, "only events that could not be published")
	flags.BoolVar(&f.inboxOnly, "inbox", false, "only messages that consumers gave up")
	flags.StringVar(&f.Consumer, "consumer", "", "only messages that this consumer gave up")
	flags.StringVar(&f.Tenant, "tenant", "", "only those of this tenant")
	flags.StringVar(&f.Topic, "topic", "", "only those of this topic")
	flags.StringVar(&f.Type, "type", "", "only those of this event type")
	flags.StringVar(&f.Error, "error", "", "only dead letters whose error contains exactly this text")
	flags.StringVar(&f.From, "died-from", "", "only dead letters that died at this time or later: "+ops.TimeForms+" ago")
	flags.StringVar(&f.Before, "died-before", "", "only dead letters that died before this time, in the same forms")
}

// complete makes a filter from the flags. It refuses flags that cannot be used together. now is the base of
// times such as "24h".
func (f *selection) complete(now time.Time) error {
	var contradiction error
	switch {
	case f.outboxOnly && (f.inboxOnly || f.Consumer != ""):
		contradiction = errors.New("--outbox contradicts --inbox and --consumer")
	case f.outboxOnly:
		f.Box = ops.BoxOutbox
	case f.inboxOnly:
		f.Box = ops.BoxInbox
	}
	names := map[ops.Field]string{ops.FieldID: "the argument", ops.FieldFrom: "--died-from", ops.FieldBefore: "--died-before"}
	var err error
	f.filter, err = f.Filter(now, func(field ops.Field) string { return names[field] })
	return errors.Join(contradiction, err)
}

// Counts is a number of dead letters, selected or treated, by box.
type Counts struct {
	Outbox int64 `json:"outbox"`
	Inbox  int64 `json:"inbox"`
}

func (c Counts) plus(box ops.Box, n int64) Counts {
	if box == ops.BoxInbox {
		return Counts{c.Outbox, c.Inbox + n}
	}
	return Counts{c.Outbox + n, c.Inbox}
}

func (c Counts) total() int64 { return c.Outbox + c.Inbox }

func (c Counts) String() string {
	return fmt.Sprintf("%d of the outbox, %d of consumers", c.Outbox, c.Inbox)
}

// count counts the selected dead letters. The count takes no lock, so the letters that are treated afterwards may be others.
func count(ctx context.Context, s *cli.Session, f *selection) (c Counts, err error) {
	for _, box := range f.Boxes() {
		n, err := s.View().Dead().Count(ctx, box, f.filter)
		if err != nil {
			return c, err
		}
		c = c.plus(box, n)
	}
	return c, nil
}

// letters reads at most limit of the selected dead letters of each box, the oldest first within a box. Callers that mix
// the boxes sort the result.
func letters(ctx context.Context, s *cli.Session, f *selection, limit int) (list []ops.Letter, err error) {
	for _, box := range f.Boxes() {
		page, err := s.View().Dead().List(ctx, box, f.filter, nil, limit)
		if err != nil {
			return nil, err
		}
		list = append(list, page...)
	}
	return list, nil
}
