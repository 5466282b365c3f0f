package consumer

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/oncebox/oncebox/console/internal/causes"
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/messaging/count"
	"github.com/oncebox/oncebox/outbox"
)

// Read lists the consumers that run or have run, with the messages that wait for them. It merges two sources, because a consumer may be in one of
// them only: without any message, or without a known process. events may be nil.
func Read(ctx context.Context, events *outbox.Store, box *inbox.Inbox) (list []Row, err error) {
	known, err := box.State().Consumers(ctx)
	if err != nil {
		return nil, err
	}
	stats, err := box.State().Stats(ctx)
	if err != nil {
		return nil, err
	}
	rows := map[string]Row{}
	for _, k := range known {
		rows[k.Consumer] = Row{Stats: state.Stats{Consumer: k.Consumer}, Consumer: k}
	}
	for _, st := range stats {
		rows[st.Consumer] = Row{Stats: st, Consumer: rows[st.Consumer].Consumer}
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		list = append(list, rows[name])
	}
	moved, err := lastMove(ctx, events)
	for n := range list {
		list[n].isOutdated = list[n].IsOutdated(moved)
	}
	return list, err
}

// lastMove returns when an operator last set events in motion, zero without events.
func lastMove(ctx context.Context, events *outbox.Store) (time.Time, error) {
	if events == nil {
		return time.Time{}, nil
	}
	return events.State().Moved(ctx)
}

// ReadWhole is [Read] with the last error of each consumer, of its handler or of its connection, whichever is later, and with what keeps it behind. events
// may be nil: then it is not known who sends what to a consumer that is behind.
func ReadWhole(ctx context.Context, events *outbox.Store, box *inbox.Inbox) ([]Row, error) {
	list, err := Read(ctx, events, box)
	if err != nil {
		return nil, err
	}
	groups, err := box.Failures().List(ctx)
	if err != nil {
		return nil, err
	}
	for n := range list {
		r := &list[n]
		if err := r.loads(ctx, events, box); err != nil {
			return nil, err
		}
		for _, t := range r.Topics {
			for _, p := range t.Processes {
				r.failed(p.Error, "", p.FailedAt)
			}
		}
		for m := range groups {
			if g := &groups[m]; g.Consumer == r.Stats.Consumer {
				r.failed(g.Example().Error, causes.Href(g.Fingerprint), g.Last())
			}
		}
	}
	return list, nil
}

// States returns the consumers of the rows.
func States(rows []Row) []state.Consumer {
	list := make([]state.Consumer, len(rows))
	for n := range rows {
		list[n] = rows[n].Consumer
	}
	return list
}

// Down returns a finding for each consumer that does not run, makes no progress, or has no connection to the broker.
func Down(rows []Row, now time.Time) (list []Finding) {
	for n := range rows {
		list = append(list, rows[n].down(now)...)
	}
	return list
}

// Waits returns how many messages wait at the broker for all consumers, "?" if no broker has answered, "counting" if no answer is new enough. late is about
// how late the oldest message is, "" if that is not known. none: there is no broker.
func Waits(rows []Row) (number, late string, none bool) {
	sum, precision, known, asked, oldest, unknown := int64(0), count.Exact, false, false, time.Duration(0), "?"
	for n := range rows {
		r := &rows[n]
		if messages, p, ok := r.atBroker(); ok {
			sum, precision, known, oldest = sum+messages, max(precision, p), true, max(oldest, r.late())
		} else if len(r.Unknown()) > 0 || r.isOutdated {
			asked = true
		}
		if r.isOutdated {
			unknown = counting
		}
	}
	switch {
	case known && asked:
		return max(precision, count.AtLeast).Words() + words.Group(sum), lateBy(oldest), false
	case known:
		return precision.Words() + words.Group(sum), lateBy(oldest), false
	default:
		return unknown, "", !asked
	}
}

// asked is how long a consumer must have been connected before it is an alarm that its broker has not reported how many messages wait. The broker is asked
// every 15 seconds, and an outage ends before its next answer.
const asked = time.Minute

// Outdated returns the names of the consumers whose messages the broker counted before an operator set them in motion.
func Outdated(rows []Row) (list []string) {
	for n := range rows {
		if rows[n].isOutdated {
			list = append(list, rows[n].Stats.Consumer)
		}
	}
	return list
}

// Unknown returns the names of the running consumers whose broker has not reported how many messages wait. The consumers of reading have been connected for
// less than a minute, so the broker is just being asked.
func Unknown(rows []Row, now time.Time) (unknown, reading []string) {
	for n := range rows {
		c := &rows[n]
		switch {
		case !c.Runs || len(c.Unknown()) == 0:
		case c.isConnected() && now.Sub(c.changed()) < asked:
			reading = append(reading, c.Stats.Consumer)
		default:
			unknown = append(unknown, c.Stats.Consumer)
		}
	}
	return unknown, reading
}
