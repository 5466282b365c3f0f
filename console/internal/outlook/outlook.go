package outlook

import (
	"cmp"
	"slices"
	"time"

	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
	"github.com/oncebox/oncebox/ops"
)

// Of says what becomes of a stuck thing if nobody does anything, "" if that is not known.
func Of(s *ops.Stuck) string {
	switch s.Kind {
	case ops.RelayLate:
		return "Nothing is lost: the events are stored, and leave by themselves when the broker takes them."
	case ops.RelayMissing:
		return "Nothing is lost: the events are stored, and leave by themselves when a relay runs."
	case ops.ConsumerMissing:
		return "The messages wait until a process runs the consumer."
	case ops.ConsumerAway:
		return "The messages wait at the broker. The consumer connects again by itself."
	case ops.ConsumerLate:
		return "The messages wait. They are handled when the handlers or the broker go on."
	case ops.ConsumerBehind:
		return "Nothing is lost: the messages are handled, but late."
	case ops.ConsumerPaused:
		return "Nothing is lost: the messages wait until the consumer is resumed."
	case ops.TenantPaused:
		return "Nothing is lost: the events are stored until the tenant is resumed."
	case ops.EventFailing:
		return "Nothing is lost: the events are stored, and tries go on by themselves."
	case ops.MessageFailing:
		return "Nothing is lost: " + cmp.Or(s.Ahead, "tries go on by themselves") + "."
	case ops.EventDead, ops.MessageDead:
		return "Nothing happens by itself: dead letters stay until they are replayed or discarded."
	case ops.StepUnknown:
		return "Nothing happens by itself: requests with the key are refused until the outcome is entered."
	default:
		return ""
	}
}

// OfKind is [Of] for things of which only the kind is known.
func OfKind(kind ops.Kind) string { return Of(&ops.Stuck{Kind: kind}) }

// OfGroup says what becomes of the failures of one cause: failures with another try, and dead letters. limit is when the consumer gives a
// message up, the zero value if that is not known.
func OfGroup(g *failures.Group, limit *operator.Limit) (list []string) {
	failing, dead := ops.Stuck{Kind: ops.EventFailing}, ops.Stuck{Kind: ops.EventDead}
	if g.Consumer != "" {
		failing.Kind, dead.Kind = ops.MessageFailing, ops.MessageDead
	}
	if *limit != (operator.Limit{}) {
		failing.Ahead = limit.Ahead(g.Failing.Example.Attempts, g.Failing.First)
	}
	if g.Failing.Count > 0 {
		list = append(list, Of(&failing))
	}
	if g.Dead.Count > 0 {
		list = append(list, Of(&dead))
		if g.Dead.Example.Holds {
			list = append(list, "Later events or messages of their ordering keys wait behind them.")
		}
	}
	return list
}

// mends is how long no try of a consumer must have failed before a cause counts as mended.
const mends = 2 * time.Minute

// Again returns how many messages a consumer has handled in the last two minutes, if no try of it failed in that time. 0: it handled nothing, or a try
// failed. Then an early try would fail, too. last is when a message of the cause began to fail, the latest: the history counts it up to a minute later.
func Again(h *operator.History, last, now time.Time) (handled int64) {
	if last.After(now.Add(-mends)) {
		return 0
	}
	for n := range h.Figures {
		f := &h.Figures[n]
		switch {
		case !f.At.Add(f.Span).After(now.Add(-mends)):
		case f.Failed > 0:
			return 0
		default:
			handled += f.Went
		}
	}
	return handled
}

// HandlesNothing reports whether a consumer tries messages and none succeeds, by the latest minutes in which it tried any.
func HandlesNothing(h *operator.History, now time.Time) bool {
	for _, f := range slices.Backward(h.Figures) {
		if f.Went > 0 || f.Failed > 0 {
			return f.Went == 0 && f.At.Add(f.Span).After(now.Add(-mends))
		}
	}
	return false
}

// Outage says what becomes of events and messages while a broker is away.
func Outage() string {
	return "Nothing is lost: events are stored, and leave by themselves when the broker answers. Consumers connect again by themselves."
}
