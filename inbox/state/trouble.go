package state

import (
	"slices"
	"time"
)

// TroubleKind says why a consumer makes no progress.
type TroubleKind string

// The kinds.
const (
	// TroubleMissing: no process runs it, and messages wait, or it is unknown whether messages wait.
	TroubleMissing TroubleKind = "missing"
	// TroubleAway: processes run it, and none of them has all of its connections.
	TroubleAway TroubleKind = "away"
	// TroubleLate: it is connected and settles nothing, although there is work.
	TroubleLate TroubleKind = "late"
	// TroubleBehind: it settles messages, and more than [Many] have waited at the broker for 30 seconds.
	TroubleBehind TroubleKind = "behind"
	// TroublePaused: an operator paused it more than a day ago, and the pause has no end.
	TroublePaused TroubleKind = "paused"
)

// A consumer with more messages at the broker than Many is behind: its messages come late. A consumer that handles a burst within half a minute is not
// behind. The alert OnceboxConsumerBehind, which wakes somebody up, waits for AlertedAfter.
const (
	Many         = 1000
	AlertedAfter = 3 * time.Minute
)

// The durations from which on it is trouble.
const (
	awayLimit   = 30 * time.Second
	behindLimit = 30 * time.Second
	lateLimit   = time.Minute
	pausedLimit = 24 * time.Hour
	// warmUp is how long a consumer may settle nothing after its start or after a pause. The broker is asked only from time to time, so the
	// first messages may have been settled unnoticed.
	warmUp = 30 * time.Second
)

// Trouble is a consumer that makes no progress at a topic.
type Trouble struct {
	Kind  TroubleKind
	Topic string
	// Since is when it began, by the clock of the database.
	Since time.Time
	// Waiting is the state of the messages at the broker.
	Waiting Waiting
	// Error is the reason, as far as it is known.
	Error string
	// Partly is true for TroubleAway if a process has some of its connections.
	Partly bool
}

// Troubles returns the troubles of the consumer, by its topics. Parked messages do not count here: see [Reader.Absent]. A paused consumer makes
// no progress on purpose, so its only trouble is a pause that was probably forgotten.
func (c *Consumer) Troubles() (list []Trouble) {
	if p := c.Pause; p.IsSet() {
		if p.Until.IsZero() && c.now.Sub(p.Since) > pausedLimit {
			list = append(list, Trouble{Kind: TroublePaused, Since: p.Since, Error: "paused by " + p.Actor + ": " + p.Reason})
		}
		return list
	}
	for n := range c.Topics {
		if t := c.trouble(&c.Topics[n]); t.Kind != "" {
			list = append(list, t)
		}
	}
	return list
}

func (c *Consumer) trouble(t *Topic) Trouble {
	found := Trouble{Topic: t.Topic, Waiting: t.Waiting}
	is := func(kind TroubleKind, since time.Time, err string) Trouble {
		found.Kind, found.Since, found.Error = kind, since, err
		return found
	}
	if len(t.Processes) == 0 {
		if !c.Runs && (!t.Waiting.Known || t.Waiting.Messages > 0) || c.Runs && t.Waiting.Known && t.Waiting.Messages > 0 {
			return is(TroubleMissing, c.SeenAt, t.Waiting.Error)
		}
		return Trouble{}
	}
	since, why := c.unconnected(t)
	switch {
	case !since.IsZero() && c.now.Sub(since) > awayLimit:
		found.Partly = slices.ContainsFunc(t.Processes, func(p Process) bool { return p.State == partly })
		return is(TroubleAway, since, why)
	case !since.IsZero():
		return Trouble{} // for a moment
	case t.Waiting.Known && t.Waiting.Missing:
		return is(TroubleAway, t.Waiting.At, "the broker has no such subscription: the topic was deleted, or somebody "+
			"unsubscribed; restart the consumer to make it")
	}
	if since, why := c.standing(t); !since.IsZero() {
		return is(TroubleLate, since, why)
	}
	if w := t.Waiting; w.Known && !w.Many.IsZero() && allPaused(t).IsZero() && c.now.Sub(w.Many) > behindLimit {
		return is(TroubleBehind, w.Many, "more messages come than it handles")
	}
	return Trouble{}
}

// Unknown returns the topics without a recent answer of the broker: if messages are stuck there, nobody can see it.
func (c *Consumer) Unknown() (list []Topic) {
	for _, t := range c.Topics {
		// Without any report of a process or answer of the broker, it is the subscription of a service without a broker.
		spoken := len(t.Processes) > 0 || c.Stopped || !t.Waiting.At.IsZero() || t.Waiting.Error != ""
		if !t.Waiting.Known && spoken && !t.isStored() {
			list = append(list, t)
		}
	}
	return list
}

// unconnected returns the time since which no process has had all of its connections, and why. Zero if a process has.
func (c *Consumer) unconnected(t *Topic) (since time.Time, why string) {
	for _, p := range t.Processes {
		if p.State != "away" && p.State != partly {
			return time.Time{}, ""
		}
		since = later(since, p.Since)
		why = p.Error
	}
	return since, why
}

// standing returns the time since which there has been work and none got done, and where the work waits. Zero if work gets done, or has
// stood still only for a short time.
func (c *Consumer) standing(t *Topic) (since time.Time, why string) {
	if !allPaused(t).IsZero() {
		return time.Time{}, ""
	}
	if w := t.Waiting; w.Known && !w.Stands.IsZero() && c.now.Sub(w.Stands) > lateLimit && c.now.Sub(receiving(t)) > warmUp {
		return w.Stands, "messages wait at the broker, and none is settled"
	}
	for _, p := range t.Processes {
		if p.Unsettled > 0 && c.now.Sub(p.Progress) > lateLimit {
			return p.Progress, "process " + p.Name + " has messages in hand, and has settled none: a handler hangs, or fails and is tried again, " +
				"or has waited for the database"
		}
	}
	return time.Time{}, ""
}

// receiving returns the time since which processes have had all of their connections. A process that was killed counts until its report
// expires, a minute later: a consumer whose processes are killed again and again makes no progress either.
func receiving(t *Topic) (since time.Time) {
	for _, p := range t.Processes {
		if p.State == "connected" && (since.IsZero() || p.Since.Before(since)) {
			since = p.Since
		}
	}
	return since
}

// allPaused returns the time since which all processes are paused. Zero if a process is not.
func allPaused(t *Topic) (since time.Time) {
	for _, p := range t.Processes {
		if p.State != "paused" {
			return time.Time{}
		}
		since = later(since, p.Since)
	}
	return since
}

// away returns how long no process has received messages of a topic. 0 if a process does.
func (c *Consumer) away(t *Topic) time.Duration {
	since, _ := c.unconnected(t)
	if len(t.Processes) == 0 {
		since = c.SeenAt
	}
	if since.IsZero() {
		return 0
	}
	return max(c.now.Sub(since), 0)
}
