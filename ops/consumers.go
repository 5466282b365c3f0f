package ops

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/messaging/count"
	"github.com/oncebox/oncebox/ops/behind"
)

// WithConsumers returns a view that calls read for the list of consumers. A view calls [state.Reader.Consumers] by
// default. A program with a connection to the broker passes a function that calls [state.Reader.ConsumersAt].
func (v *View) WithConsumers(read func(context.Context) ([]state.Consumer, error)) *View {
	other := *v
	other.read = read
	return &other
}

// known reads the consumers, from the broker if the view was made by WithConsumers, else from what the
// processes have stored.
func (v *View) known(ctx context.Context) ([]state.Consumer, error) {
	if v.read != nil {
		return v.read(ctx)
	}
	return v.inbox.State().Consumers(ctx)
}

// stuckConsumers finds consumers that do not run or make no progress.
func (v *View) stuckConsumers(ctx context.Context, filter Filter) (list []Stuck, err error) {
	if v.inbox == nil {
		return nil, nil
	}
	parked, err := v.inbox.State().Absent(ctx)
	if err != nil {
		return nil, err
	}
	all, err := v.known(ctx)
	if err != nil {
		return nil, err
	}
	for n := range all {
		c := &all[n]
		since, waits := parked[c.Consumer]
		switch {
		case filter.Consumer != "" && filter.Consumer != c.Consumer:
		case !c.Runs && !c.Pause.IsSet():
			if s, is := missing(c, since, waits); is {
				list = append(list, s)
			}
		default:
			list = append(list, troubles(c)...)
		}
	}
	return list, nil
}

// missing returns a finding for a consumer that no process runs, if messages wait for it, or may wait.
func missing(c *state.Consumer, since time.Time, parked bool) (Stuck, bool) {
	s := Stuck{Kind: ConsumerMissing, Consumer: c.Consumer, Since: c.SeenAt, BacklogKnown: true, Vanished: !c.Stopped && !c.SeenAt.IsZero()}
	// Parked messages prove since when the consumer is missed. Otherwise only its last sign of life is known.
	if parked {
		s.Since = since
	}
	var whys []string
	found := c.Troubles()
	for _, t := range found {
		s.Backlog, s.Precision, s.Late = s.Backlog+t.Waiting.Messages, max(s.Precision, t.Waiting.Precision), max(s.Late, t.Waiting.Late())
		// Connections at the broker without a sign of life in the database mean that the processes live, see fate.
		s.Connections += t.Waiting.Connections
		if !t.Waiting.Known {
			s.BacklogKnown = false
			whys = append(whys, unknownWaiting(t.Topic, &t.Waiting))
		}
	}
	// With several topics none is named: the consumer is missing at all of them.
	if len(found) == 1 {
		s.Topic = found[0].Topic
	}
	if s.BacklogKnown && s.Backlog > 0 {
		whys = append([]string{waitingAt(&s)}, whys...)
	}
	s.Error = strings.Join(append(whys, fate(&s, c.Stopped)), "; ")
	return s, parked || len(found) > 0
}

// fate returns a sentence about how the consumer's processes ended, as far as that is known.
func fate(s *Stuck, stopped bool) string {
	switch {
	case stopped:
		return "no process runs the consumer; its last process shut down cleanly"
	case !s.Vanished:
		return "no process runs the consumer"
	case s.BacklogKnown && s.Connections > 0:
		return fmt.Sprintf("its processes did not shut down cleanly, and the broker still has %d of them connected: "+
			"they run but cannot reach the database, or they are frozen", s.Connections)
	default:
		return "its processes did not shut down cleanly: they were killed, are frozen, or cannot reach the database"
	}
}

// waitingAt returns a sentence about how many messages wait at the broker, and how late they are.
func waitingAt(s *Stuck) string {
	text := messages(s.Backlog, s.Precision) + " wait at the broker"
	if s.Backlog == 1 {
		text = messages(1, s.Precision) + " waits at the broker"
	}
	if s.Late >= time.Second {
		text += ", late by about " + s.Late.Round(time.Second).String()
	}
	return text
}

// messages is the number with its noun.
func messages(n int64, p count.Precision) string {
	if n == 1 {
		return p.Words() + "1 message"
	}
	return fmt.Sprintf("%s%d messages", p.Words(), n)
}

// unknownWaiting returns a sentence that it is unknown how many messages wait, and why.
func unknownWaiting(topic string, w *state.Waiting) string {
	text := "it is not known how many messages of topic " + topic + " wait at the broker"
	// The number of an earlier answer is better than none, but it must be shown as old.
	if !w.At.IsZero() {
		text += fmt.Sprintf("; at %[2]s it was %[1]s", messages(w.Messages, w.Precision), w.At.UTC().Format(time.RFC3339))
	}
	if w.Error != "" {
		text += " (" + w.Error + ")"
	}
	return text
}

// troubles returns a finding for each trouble of a running consumer.
func troubles(c *state.Consumer) (list []Stuck) {
	kinds := map[state.TroubleKind]Kind{
		state.TroubleMissing: ConsumerMissing, state.TroubleAway: ConsumerAway, state.TroubleLate: ConsumerLate, state.TroubleBehind: ConsumerBehind,
		state.TroublePaused: ConsumerPaused,
	}
	for _, t := range c.Troubles() {
		s := Stuck{
			Kind: kinds[t.Kind], Since: t.Since, Consumer: c.Consumer, Topic: t.Topic, Error: t.Error,
			Backlog: t.Waiting.Messages, Precision: t.Waiting.Precision, BacklogKnown: t.Waiting.Known, Late: t.Waiting.Late(),
		}
		if s.Kind == ConsumerMissing {
			s.Error = waitingAt(&s) + ", and no process runs the consumer for this topic"
			// A late consumer's error has the number already.
		} else if s.BacklogKnown && s.Backlog > 0 && t.Kind != state.TroubleLate {
			s.Error = strings.TrimPrefix(s.Error+"; "+waitingAt(&s), "; ")
		}
		list = append(list, s)
	}
	return list
}

// loadedParts is parts, with the load of each consumer that is behind in its Error.
func (v *View) loadedParts(ctx context.Context, filter Filter, limit int) ([]Stuck, error) {
	list, err := v.parts(ctx, filter, limit)
	if err != nil {
		return nil, err
	}
	for n := range list {
		s := &list[n]
		if s.Kind != ConsumerBehind {
			continue
		}
		queue := behind.Queue{Consumer: s.Consumer, Topic: s.Topic, Since: s.Since, Messages: s.Backlog, Precision: s.Precision, Late: s.Late}
		load, err := queue.Read(ctx, v.outbox, v.inbox)
		if err != nil {
			return nil, err
		}
		if text := load.Text(); text != "" {
			s.Error += "; " + text
		}
	}
	return list, nil
}

// Unknown lists the consumers for which the number of messages at the broker is unknown, with the reason. Messages that
// are stuck there would not be noticed. A number that is older than the last action that changes it is unknown, too.
func (v *View) Unknown(ctx context.Context, filter Filter) (list []string, err error) {
	if v.inbox == nil {
		return nil, nil
	}
	all, err := v.known(ctx)
	if err != nil {
		return nil, err
	}
	moved, err := v.moved(ctx)
	if err != nil {
		return nil, err
	}
	for n := range all {
		c := &all[n]
		if filter.Consumer != "" && filter.Consumer != c.Consumer {
			continue
		}
		for _, t := range c.Unknown() {
			list = append(list, c.Consumer+": "+unknownWaiting(t.Topic, &t.Waiting))
		}
		if c.IsOutdated(moved) {
			list = append(list, c.Consumer+": the broker counted its messages before an operator set them in motion; the next count comes within half a minute")
		}
	}
	return list, nil
}

// moved is outbox/state.Reader.Moved, zero without an outbox.
func (v *View) moved(ctx context.Context) (time.Time, error) {
	if v.outbox == nil {
		return time.Time{}, nil
	}
	return v.outbox.State().Moved(ctx)
}

// byConsumer sorts findings: relays first, then consumers by name.
func byConsumer(list []Stuck) {
	slices.SortStableFunc(list, func(a, b Stuck) int { return cmp.Or(cmp.Compare(a.Consumer, b.Consumer), a.Since.Compare(b.Since)) })
}
