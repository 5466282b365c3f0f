package state

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/oncebox/oncebox/inbox/internal/pauses"
	"github.com/oncebox/oncebox/inbox/internal/store"
)

// freshFor is how long an answer of the broker counts as up to date.
const freshFor = time.Minute

// states collects the rows of all tables about the consumers.
type states struct {
	now           time.Time
	beats         []beaten
	processes     []process
	subscriptions []subscriptionRow
	pauses        []pauses.Pause
	ended         map[string]time.Time

	list map[string]*Consumer
}

// beaten is the heartbeat of a consumer.
type beaten struct {
	consumer      string
	beat, stopped time.Time
}

// process is the report of a process about a consumer at a topic.
type process struct {
	Process

	consumer, topic string
	seen            time.Time
	alive           bool
}

// subscriptionRow is the stored answer of the broker about a consumer at a topic.
type subscriptionRow struct {
	Waiting

	consumer, topic string
}

// sorted merges the rows of the three tables by consumer. Answers older than a minute are kept and marked as not known.
func (a *states) sorted() []Consumer {
	for _, p := range a.processes {
		a.of(p.consumer)
	}
	for _, s := range a.subscriptions {
		// One request that failed makes an answer no older: a broker that is busy answers the next one.
		s.Known = s.At.After(a.now.Add(-freshFor))
		a.of(s.consumer).topic(s.topic).Waiting = s.Waiting
	}
	for _, b := range a.beats {
		a.of(b.consumer).SeenAt = b.beat
	}
	for _, p := range a.processes {
		if topic := a.of(p.consumer).topic(p.topic); p.alive {
			p.State = strings.ToLower(p.State)
			topic.Processes = append(topic.Processes, p.Process)
		}
	}
	paused := map[string]Pause{}
	for _, p := range a.pauses {
		paused[p.Consumer] = p
	}
	for name, c := range a.list {
		a.judge(name, c)
		c.Pause, c.Resumed = paused[store.Family(name)], a.ended[store.Family(name)]
		c.now = a.now
		slices.SortFunc(c.Topics, func(x, y Topic) int { return cmp.Compare(x.Topic, y.Topic) })
	}
	return sortedStates(a.list)
}

// of returns the consumer of this name, and makes it if there is none.
func (a *states) of(name string) *Consumer {
	if a.list[name] == nil {
		a.list[name] = &Consumer{Consumer: name}
	}
	return a.list[name]
}

// topic returns the consumer's topic of this name, and makes it if there is none.
func (c *Consumer) topic(name string) *Topic {
	for n := range c.Topics {
		if c.Topics[n].Topic == name {
			return &c.Topics[n]
		}
	}
	c.Topics = append(c.Topics, Topic{Topic: name})
	return &c.Topics[len(c.Topics)-1]
}

// judge sets whether a consumer runs. A process reports that regularly and when it ends, for all generations of a read model; a process
// that only handles parked messages notes it every minute.
func (a *states) judge(name string, c *Consumer) {
	var said, stopped time.Time
	for _, p := range a.processes {
		if p.consumer != store.Family(name) {
			continue
		}
		c.Runs = c.Runs || p.alive
		said = later(said, p.seen)
	}
	for _, b := range a.beats {
		if store.Family(b.consumer) == store.Family(name) {
			stopped = later(stopped, b.stopped)
		}
	}
	beat := c.SeenAt
	c.SeenAt = later(later(beat, said), stopped)
	c.Stopped = !c.Runs && !stopped.IsZero() && c.SeenAt.Equal(stopped)
	// The beat is newer than all reports, so a process that only handles parked messages runs the consumer.
	if !c.Runs && !c.Stopped && beat.After(said.Add(store.ReportInterval+store.ReportInterval/2)) {
		c.Runs = beat.After(a.now.Add(-unseenAfter))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
