package consumers

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/messaging/count"
	"github.com/oncebox/oncebox/ops"
)

// Item is a consumer in the JSON output of status and of consumers list. Scripts use the names, so they never change.
type Item struct {
	Consumer string `json:"consumer"`
	Runs     bool   `json:"runs"`
	// Stopped is true if the last process of the consumer has shut down in order, at SeenAt.
	Stopped bool `json:"stopped"`
	// Pause is null unless an operator has paused the consumer.
	Pause            *PauseItem  `json:"pause,omitempty"`
	SeenAt           *time.Time  `json:"seen_at,omitempty"`
	Topics           []TopicItem `json:"topics"`
	Parked           int         `json:"parked"`
	OldestAgeSeconds float64     `json:"oldest_age_seconds"`
	KeysWaiting      int         `json:"keys_waiting"`
	KeysFailed       int         `json:"keys_failed"`
	KeysDead         int         `json:"keys_dead"`
	Dead             int         `json:"dead"`
	// CountedUpTo is where the counts above stop. 0: no count is known.
	CountedUpTo int `json:"counted_up_to"`

	outdated bool // see ops.ConsumerStatus.IsOutdated
}

// PauseItem is a pause of a consumer.
type PauseItem struct {
	By    string     `json:"by"`
	Why   string     `json:"why"`
	Since time.Time  `json:"since"`
	Until *time.Time `json:"until,omitempty"`
}

// PausedText returns who paused the consumer, when and why: "paused by ann since 02:38: smtp is down". "" if it is not paused.
func (c *Item) PausedText() string {
	if c.Pause == nil {
		return ""
	}
	until := ""
	if c.Pause.Until != nil {
		until = " until " + cli.At(c.Pause.Until)
	}
	return "paused by " + cli.Short(c.Pause.By, 40) + " since " + cli.At(&c.Pause.Since) + until + ": " + cli.Short(c.Pause.Why, 80)
}

// TopicItem is the state of a consumer at one topic.
type TopicItem struct {
	Topic string `json:"topic"`
	// Backlog is the number of messages that wait at the broker. null: unknown; BacklogError is the reason,
	// if that is known.
	Backlog *int64 `json:"backlog"`
	// BacklogPrecision is exact, estimated, or at least: then Backlog is a lower bound.
	BacklogPrecision count.Precision `json:"backlog_precision"`
	// BacklogAgeSeconds is how long the oldest of these messages had waited at BacklogAt. 0: none waits, or it is unknown.
	BacklogAgeSeconds float64    `json:"backlog_age_seconds"`
	BacklogAt         *time.Time `json:"backlog_at,omitempty"`
	BacklogError      string     `json:"backlog_error,omitempty"`
	StandingSince     *time.Time `json:"standing_since,omitempty"`
	// Connections is the number of consumers that the broker has connected.
	Connections int           `json:"connections"`
	Missing     bool          `json:"missing"`
	Processes   []ProcessItem `json:"processes"`
}

// ProcessItem is a process that runs a consumer.
type ProcessItem struct {
	Name string `json:"name"`
	// State is connected, partly, away, paused or stored.
	State      string     `json:"state"`
	Since      time.Time  `json:"since"`
	Unsettled  int        `json:"unsettled"`
	ProgressAt *time.Time `json:"progress_at,omitempty"`
	Error      string     `json:"error,omitempty"`
	FailedAt   *time.Time `json:"failed_at,omitempty"`
}

// ItemOf makes the output for a consumer. Absent times are null and absent lists [], so a script can
// distinguish them from zero.
func ItemOf(c *ops.ConsumerStatus) Item {
	item := Item{
		Consumer: c.Consumer, Runs: c.Run.Runs, Stopped: c.Run.Stopped, SeenAt: cli.TimeOf(c.Run.SeenAt), Topics: []TopicItem{}, Parked: c.Stats.Parked,
		OldestAgeSeconds: c.Stats.OldestParked.Seconds(), KeysWaiting: c.Stats.Waiting, KeysFailed: c.Stats.Failed, KeysDead: c.Stats.Dead,
		Dead: c.Stats.DeadLetters, CountedUpTo: c.Stats.Counted, outdated: c.IsOutdated,
	}
	if p := c.Run.Pause; p.IsSet() {
		item.Pause = &PauseItem{p.Actor, p.Reason, p.Since, cli.TimeOf(p.Until)}
	}
	for n := range c.Run.Topics {
		item.Topics = append(item.Topics, topicOf(&c.Run.Topics[n]))
	}
	return item
}

// topicOf leaves Backlog nil if the broker has not answered: 0 would say that nothing waits.
func topicOf(t *state.Topic) TopicItem {
	w := &t.Waiting
	item := TopicItem{
		Topic: t.Topic, BacklogAt: cli.TimeOf(w.At), BacklogError: w.Error, StandingSince: cli.TimeOf(w.Stands), Connections: w.Connections, Missing: w.Missing,
		Processes: []ProcessItem{},
	}
	if w.Known {
		item.Backlog, item.BacklogPrecision, item.BacklogAgeSeconds = &w.Messages, w.Precision, w.Late().Seconds()
	}
	for _, p := range t.Processes {
		item.Processes = append(item.Processes, ProcessItem{p.Name, p.State, p.Since, p.Unsettled, cli.TimeOf(p.Progress), p.Error, cli.TimeOf(p.FailedAt)})
	}
	return item
}

// HowItRuns returns in a few words whether and how the consumer runs. If its processes differ, it says how many are in
// which state, because one process without a connection is easily overlooked.
func (c *Item) HowItRuns() string {
	switch {
	case c.Pause != nil && c.Runs:
		return c.PausedText()
	case c.Stopped:
		return "stopped " + cli.At(c.SeenAt)
	case !c.Runs && c.SeenAt != nil:
		return "not seen since " + cli.At(c.SeenAt)
	case !c.Runs:
		return "never"
	}
	// The latest time of each state counts: since then the processes have all been in it.
	counts, since, all := map[string]int{}, map[string]time.Time{}, 0
	for _, t := range c.Topics {
		for _, p := range t.Processes {
			counts[p.State]++
			all++
			if p.Since.After(since[p.State]) {
				since[p.State] = p.Since
			}
		}
	}
	if all == counts["connected"]+counts["stored"] {
		return "yes"
	}
	var parts []string
	for _, state := range []struct{ name, text string }{
		{"away", "no connection since "}, {"partly", "some partitions without connection since "}, {"paused", "paused since "},
	} {
		n, when := counts[state.name], since[state.name]
		switch {
		case n == all:
			return state.text + cli.At(&when)
		case n > 0:
			parts = append(parts, fmt.Sprintf("%d of %d: %s%s", n, all, state.text, cli.At(&when)))
		}
	}
	return "yes, but " + strings.Join(parts, "; ")
}

// AtBroker returns how many messages wait at the broker in all topics of the consumer, and how late they are: "about 7, late by 2m10s" if the broker only
// counts batches, "?" if that is unknown, "counting" if the count is older than the last action that changes it, "-" if there is no broker.
func (c *Item) AtBroker() string {
	sum, precision, late, stored, known := int64(0), count.Exact, 0.0, true, true
	for _, t := range c.Topics {
		stored = stored && len(t.Processes) > 0
		for _, p := range t.Processes {
			stored = stored && p.State == "stored"
		}
		// One topic whose number is unknown makes the sum unknown. A partial sum would look like the whole.
		if known = known && t.Backlog != nil; known {
			sum += *t.Backlog
		}
		precision, late = max(precision, t.BacklogPrecision), max(late, t.BacklogAgeSeconds)
	}
	text := precision.Words() + strconv.FormatInt(sum, 10)
	if late >= 1 {
		text += ", late by " + cli.Age(math.Round(late))
	}
	switch {
	case stored:
		return "-"
	case c.outdated:
		return "counting"
	case known:
		return text
	default:
		return "?"
	}
}

// Count formats one of the consumer's counts, with a plus if there may be more: counting stops at CountedUpTo, so that
// a status never reads a whole backlog.
func (c *Item) Count(n int) string {
	if c.CountedUpTo == 0 {
		return strconv.Itoa(n)
	}
	return cli.UpTo(int64(n), int64(c.CountedUpTo))
}
