package state

import (
	"time"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/operator"
)

// countedWithin is the longest time between two readings of which the difference is counted. A leader that has read nothing for as long may have been
// replaced, and its successor has counted the same messages: see package leader.
const countedWithin = 45 * time.Second

// progress counts what the processes have done since the last reading of their reports.
type progress struct {
	at   time.Time // of the last reading, by the clock of the database; zero: unknown
	seen map[ranBy][2]int64
}

// ranBy is a consumer in a process.
type ranBy struct{ consumer, process string }

// since returns the figures of the consumers, by their names, generations of a read model together, and remembers the reports. What a process did
// after its last report is not counted. A process that was not there before has done all of its work since.
func (p *progress) since(list []Consumer) map[string]operator.Figures {
	reading, now := map[string]operator.Figures{}, progress{seen: map[ranBy][2]int64{}}
	for n := range list {
		c := &list[n]
		now.at = c.now
		name := store.Family(c.Consumer)
		f, known := reading[name]
		if !known {
			f = operator.Figures{Waiting: operator.Unknown, Parked: operator.Unknown, Failing: operator.Unknown, Dead: operator.Unknown}
		}
		if len(c.Topics) > 0 {
			f.Waiting = allWaiting(c.Topics)
		}
		for m := range c.Topics {
			for _, by := range c.Topics[m].Processes {
				now.seen[ranBy{name, by.ID}] = [2]int64{by.Handled, by.Failed}
			}
		}
		reading[name] = f
	}
	if took := now.at.Sub(p.at); took > 0 && took <= countedWithin {
		for by, done := range now.seen {
			f, before := reading[by.consumer], p.seen[by]
			f.Went, f.Failed = f.Went+max(done[0]-before[0], 0), f.Failed+max(done[1]-before[1], 0)
			reading[by.consumer] = f
		}
		for name, f := range reading {
			f.Counted = took
			reading[name] = f
		}
	}
	*p = now
	return reading
}

// allWaiting returns how many messages wait at the broker for all topics. It is unknown if the broker has not answered for one of them.
func allWaiting(topics []Topic) (sum int64) {
	for n := range topics {
		if !topics[n].Waiting.Known {
			return operator.Unknown
		}
		sum += topics[n].Waiting.Messages
	}
	return sum
}
