package state

import (
	"slices"
	"time"
)

// TroubleKind says why a consumer does not get on.
type TroubleKind string

// The kinds.
const (
	// TroubleMissing: no process runs it, and messages wait, or nobody knows whether some do.
	TroubleMissing TroubleKind = "missing"
	// TroubleAway: processes run it, and none of them has all of its connections.
	TroubleAway TroubleKind = "away"
	// TroubleLate: it is connected and settles nothing, although there is work.
	TroubleLate TroubleKind = "late"
	// TroublePaused: it was paused by inbox.Inbox.Pause long ago.
	TroublePaused TroubleKind = "paused"
)

// Limits from which on it is trouble.
const (
	awayLimit   = 30 * time.Second
	lateLimit   = time.Minute
	pausedLimit = 24 * time.Hour
	// warmUp is for how long a consumer that has begun, or goes on after a pause, may not have been seen to settle anything: the broker is asked
	// from time to time.
	warmUp = 30 * time.Second
)

// Trouble is a consumer that does not get on at a topic.
type Trouble struct {
	Kind  TroubleKind
	Topic string
	// Since is when it began, by the clock of the database.
	Since time.Time
	// Waiting is what is known of the messages at the broker.
	Waiting Waiting
	// Error is why, as far as that is known.
	Error string
}

// Troubles are those of the consumer, by its topics. What is parked in the database is not looked at: see [Reader.Absent].
func (c *Consumer) Troubles() (list []Trouble) {
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
	if since := allPaused(t); !since.IsZero() && c.now.Sub(since) > pausedLimit {
		return is(TroublePaused, since, "")
	}
	return Trouble{}
}

// Unknown are the topics of which nobody knows what waits at the broker: nothing that is stuck there can be seen.
func (c *Consumer) Unknown() (list []Topic) {
	for _, t := range c.Topics {
		// A subscription that neither a process nor the broker ever spoke of is that of a service without a broker.
		spoken := len(t.Processes) > 0 || c.Stopped || !t.Waiting.At.IsZero() || t.Waiting.Error != ""
		stored := slices.ContainsFunc(t.Processes, func(p Process) bool { return p.State == "stored" })
		if !t.Waiting.Known && spoken && !stored {
			list = append(list, t)
		}
	}
	return list
}

// unconnected is since when no process has had all of its connections, and why. Zero: one has.
func (c *Consumer) unconnected(t *Topic) (since time.Time, why string) {
	for _, p := range t.Processes {
		if p.State != "away" && p.State != "partly" {
			return time.Time{}, ""
		}
		since = later(since, p.Since)
		why = p.Error
	}
	return since, why
}

// standing is since when there has been work and none got done, and where. Zero: that is not so, or not for long.
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

// receiving is since when a process has had all of its connections. Those that were killed count for the minute in which they are believed: a consumer whose
// processes are killed again and again does not get on either.
func receiving(t *Topic) (since time.Time) {
	for _, p := range t.Processes {
		if p.State == "connected" && (since.IsZero() || p.Since.Before(since)) {
			since = p.Since
		}
	}
	return since
}

// allPaused is since when all processes are paused. Zero: one is not.
func allPaused(t *Topic) (since time.Time) {
	for _, p := range t.Processes {
		if p.State != "paused" {
			return time.Time{}
		}
		since = later(since, p.Since)
	}
	return since
}

// away is for how long nobody has received messages of a topic. 0: somebody does.
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
