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
	"github.com/oncebox/oncebox/outbox"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

const (
	// longest is the longest time over which events are counted.
	longest = 15 * time.Minute
	// ratedOver is the time over which the rate of the consumer is measured.
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
	l = Load{Since: time.Now().Add(-longest), Precision: q.Precision}
	if q.Since.After(l.Since) {
		l.Since = q.Since
	}
	if events != nil {
		list, err := events.State().Loads(ctx, l.Since, q.Topic)
		if err != nil {
			return l, err
		}
		l.Shares, l.Events = sharesOf(list)
	}
	if messages == nil {
		return l, nil
	}
	all, err := messages.State().History(ctx, ratedOver)
	if err != nil {
		return l, err
	}
	var went int64
	var counted time.Duration
	for _, f := range all[state.Family(q.Consumer)].Figures {
		went, counted = went+f.Went, counted+f.Counted
	}
	if went > 0 && counted > 0 {
		l.Handled = float64(went) / counted.Seconds()
	}
	if l.Handled > 0 && q.Late <= 0 {
		l.Delay = time.Duration(float64(q.Messages) / l.Handled * float64(time.Second))
	}
	return l, nil
}

// sharesOf adds the loads up by tenant, in their order: the largest first.
func sharesOf(list []outboxstate.Load) (shares []Share, events float64) {
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
	return shares, events
}
