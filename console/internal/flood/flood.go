package flood

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/messaging/count"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/tenants"
)

const (
	// lateFrom is how late the oldest message is from which a flood is more than a burst.
	lateFrom = 30 * time.Second
	// lasting is the part of the history that is read, more than package trend needs.
	lasting = 10 * time.Minute
)

// Flood is many messages of one topic that consumers have not handled yet.
type Flood struct {
	Topic string
	// Names are the consumers, in their order. Since is when the first of them had more than state.Many messages, and Late whether that lasts: a consumer is
	// behind, or the oldest message has waited for half a minute.
	Names []string
	Since time.Time
	Late  bool
	// Sender is the tenant that has recorded at least half of the events for the topic since then. The zero value: that is not known, or no tenant has.
	Sender Sender

	messages  int64 // of all of them, at this topic
	precision count.Precision
	courses   []*Course
	oldest    time.Duration    // how late the oldest message is; 0: unknown
	named     bool             // a consumer has other topics, too
	resumed   []tenants.Resume // just before: their events that had waited came at once, and may have been recorded long before
}

// Read returns the floods, by topic. Without events it is not known who sends.
func Read(ctx context.Context, now time.Time, events *outbox.Store, box *inbox.Inbox, list []state.Consumer) ([]Flood, error) {
	if len(of(list, nil, now)) == 0 {
		return nil, nil
	}
	went, err := box.State().History(ctx, lasting)
	if err != nil {
		return nil, err
	}
	all := of(list, went, now)
	if events == nil {
		return all, nil
	}
	paused, err := events.Tenants().Paused(ctx)
	if err != nil {
		return nil, err
	}
	for n := range all {
		f := &all[n]
		if f.resumed, err = events.Tenants().Resumed(ctx, f.Since.Add(-released), f.Since); err != nil {
			return nil, err
		}
		if err := f.findSender(ctx, now, events, paused); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Since returns since when a consumer that handles messages has had more than state.Many of them at a topic. Zero: it has not, or it handles nothing.
func Since(c *state.Consumer) (since time.Time) {
	for n := range c.Topics {
		if t := &c.Topics[n]; isIn(c, t) && (since.IsZero() || t.Waiting.Many.Before(since)) {
			since = t.Waiting.Many
		}
	}
	return since
}

// isIn reports whether a consumer is in a flood of a topic.
func isIn(c *state.Consumer, t *state.Topic) bool {
	return c.Runs && !c.Pause.IsSet() && t.Waiting.Known && !t.Waiting.Many.IsZero() && !slices.ContainsFunc(c.Troubles(), func(o state.Trouble) bool {
		return o.Topic == t.Topic && o.Kind != state.TroubleBehind
	})
}

// of returns the floods without their senders. went are the histories of the consumers.
func of(list []state.Consumer, went map[string]operator.History, now time.Time) (all []Flood) {
	for n := range list {
		c := &list[n]
		for m := range c.Topics {
			t := &c.Topics[m]
			if !isIn(c, t) {
				continue
			}
			at := slices.IndexFunc(all, func(f Flood) bool { return f.Topic == t.Topic })
			if at < 0 {
				at, all = len(all), append(all, Flood{Topic: t.Topic, Since: t.Waiting.Many})
			}
			all[at].add(c, t)
			h := went[state.Family(c.Consumer)]
			all[at].courses = append(all[at].courses, CourseOf(c, &h, now))
		}
	}
	slices.SortFunc(all, func(a, b Flood) int { return a.Since.Compare(b.Since) })
	return all
}

// add adds a consumer.
func (f *Flood) add(c *state.Consumer, t *state.Topic) {
	w := &t.Waiting
	f.Names, f.named = append(f.Names, c.Consumer), f.named || len(c.Topics) > 1
	if w.Many.Before(f.Since) {
		f.Since = w.Many
	}
	f.messages, f.precision = f.messages+w.Messages, max(f.precision, w.Precision)
	f.oldest = max(f.oldest, w.Late())
	f.Late = f.Late || f.oldest >= lateFrom || slices.ContainsFunc(c.Troubles(), func(o state.Trouble) bool { return o.Topic == t.Topic })
}

// Text returns the sentences that follow the names of the consumers.
func (f *Flood) Text(now time.Time) string {
	has, forThem := "has", ""
	if len(f.Names) > 1 {
		has, forThem = "have", " for them"
	}
	text := has + " been behind"
	if !f.Late {
		text = has + " had more than " + words.Group(state.Many) + " messages to handle"
	}
	if f.named {
		text += " at the topic " + f.Topic
	}
	text += " since " + words.Since(now, f.Since) + ": " + f.precision.Words() +
		words.Counted(f.messages, "message waits", "messages wait") + forThem + " at the broker"
	if f.oldest >= time.Second {
		text += ", late by about " + words.Short(f.oldest)
	}
	text += "."
	if len(f.courses) == 1 {
		text += f.courses[0].sentence()
	} else {
		text += slices.MaxFunc(f.courses, compareSlowness).ofSeveral()
	}
	var resumed strings.Builder
	for _, r := range f.resumed {
		resumed.WriteString(" The tenant " + r.Tenant + " was resumed at " + words.Since(now, r.At) + ": its events that had waited came at once.")
	}
	return text + resumed.String() + f.Sender.text()
}
