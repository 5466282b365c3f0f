package behind

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/messaging/count"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

const (
	// longest is the longest time over which events are counted.
	longest = 15 * time.Minute
	// ratedOver is the longest time over which the rate of the consumer is measured.
	ratedOver = 5 * time.Minute
)

// Queue is what waits at the broker for a consumer at a topic.
type Queue struct {
	Consumer, Topic string
	// Since is when the consumer fell behind.
	Since time.Time
	// Messages is how many messages wait, and Precision how far to trust it.
	Messages  int64
	Precision count.Precision
	// Late is how long the oldest of them has waited, by the broker. 0: unknown. Then it is computed how long a message that comes now waits.
	Late time.Duration
}

// Read finds out who has recorded how much for the topic since the consumer fell behind, for 15 minutes at most, and how long a message waits. A store
// may be nil.
func (q *Queue) Read(ctx context.Context, events *outbox.Store, messages *inbox.Inbox) (l Load, err error) {
	l = Load{Since: From(q.Since, time.Now()), Precision: q.Precision}
	if events != nil {
		if l.Shares, err = Shares(ctx, events, l.Since, q.Topic); err != nil {
			return l, err
		}
	}
	if messages == nil {
		return l, nil
	}
	all, err := messages.State().History(ctx, ratedOver)
	if err != nil {
		return l, err
	}
	l.Handled = handled(all[state.Family(q.Consumer)].Figures, q.Since)
	if l.Handled > 0 && q.Late <= 0 {
		l.Delay = time.Duration(float64(q.Messages) / l.Handled * float64(time.Second))
	}
	return l, nil
}

// handled returns how many messages were handled in a second since a time. Minutes in which the consumer had less to do than it could say nothing about its
// speed, so minutes before that time do not count. The minute that has the time counts only as long as there is no other.
func handled(figures []operator.Figures, since time.Time) float64 {
	for _, from := range []time.Time{since, since.Truncate(time.Minute)} {
		var went int64
		var counted time.Duration
		for n := range figures {
			if f := &figures[n]; !f.At.Before(from) {
				went, counted = went+f.Went, counted+f.Counted
			}
		}
		if went > 0 && counted > 0 {
			return float64(went) / counted.Seconds()
		}
	}
	return 0
}

// From returns the time from which events are counted for a backlog that began at since: at most 15 minutes before now.
func From(since, now time.Time) time.Time {
	if from := now.Add(-longest); since.Before(from) {
		return from
	}
	return since
}

// Shares returns the parts of the tenants in the events that were recorded for a topic since a time, the largest first.
func Shares(ctx context.Context, events *outbox.Store, since time.Time, topic string) ([]Share, error) {
	loads, err := events.State().Loads(ctx, since, topic)
	if err != nil {
		return nil, err
	}
	return sharesOf(loads), nil
}

// sharesOf adds the loads up by tenant, in their order: the largest first.
func sharesOf(list []outboxstate.Load) (shares []Share) {
	var events float64
	of := map[string]int{}
	for _, o := range list {
		n, known := of[o.Tenant]
		if !known {
			n = len(shares)
			of[o.Tenant], shares = n, append(shares, Share{Tenant: o.Tenant})
		}
		shares[n].Events, shares[n].Types = shares[n].Events+o.Events, append(shares[n].Types, o.Type)
		events += o.Events
	}
	for n := range shares {
		shares[n].Percent = int(math.Round(100 * shares[n].Events / events))
	}
	slices.SortStableFunc(shares, func(a, b Share) int { return cmp.Compare(b.Events, a.Events) })
	return shares
}
