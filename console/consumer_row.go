package console

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/oncebox/oncebox/inbox/state"
)

// consumerRow is a consumer, and what waits in the database for it.
type consumerRow struct {
	state.Stats

	state.Consumer
}

// State and Word say how it is: the class of the stylesheet, and what the page calls it.
func (r *consumerRow) State() string {
	switch {
	case r.Runs && len(r.Troubles()) > 0:
		return stateBad
	case r.Runs && (!r.isConnected() || r.Failed > 0):
		return stateWarn
	case r.Runs:
		return stateGood
	case r.Parked > 0 || len(r.Troubles()) > 0:
		return stateBad
	default:
		return statePlain
	}
}

// Word is what the page calls the state.
func (r *consumerRow) Word() string {
	words := map[state.TroubleKind]string{
		state.TroubleAway: "no connection", state.TroubleLate: "does not get on", state.TroublePaused: "paused", state.TroubleMissing: "does not run",
	}
	switch found := r.Troubles(); {
	case r.Stopped:
		return "stopped"
	case r.vanished():
		return "not seen"
	case !r.Runs:
		return "does not run"
	case len(found) > 0:
		return words[found[0].Kind]
	case r.isPaused():
		return words[state.TroublePaused]
	case !r.isConnected():
		return "runs in part"
	case r.Failed > 0:
		return "runs, keys fail"
	default:
		return "runs"
	}
}

// isConnected reports whether all its processes are connected, and none is paused.
func (r *consumerRow) isConnected() bool { return r.all("connected", "stored") }

// isPaused reports whether all its processes are paused.
func (r *consumerRow) isPaused() bool { return !r.isConnected() && r.all("paused") }

// all reports whether each of its processes is in one of the states.
func (r *consumerRow) all(states ...string) bool {
	for _, t := range r.Topics {
		for _, p := range t.Processes {
			if !slices.Contains(states, p.State) {
				return false
			}
		}
	}
	return true
}

// AtBroker is how many messages wait at the broker, in all its topics. "": there is none, or nothing is known of it.
func (r *consumerRow) AtBroker() string {
	n, known := int64(0), len(r.Topics) > 0
	for _, t := range r.Topics {
		known = known && t.Waiting.Known
		n += t.Waiting.Messages
	}
	switch {
	case known:
		return group(n)
	case len(r.Unknown()) > 0:
		return "?"
	default:
		return ""
	}
}

// Asked is when the broker said so, nil if there is none or nobody knows.
func (r *consumerRow) Asked() *time.Time {
	var oldest time.Time
	for _, t := range r.Topics {
		if !t.Waiting.Known || t.Waiting.At.IsZero() {
			return nil
		}
		if oldest.IsZero() || t.Waiting.At.Before(oldest) {
			oldest = t.Waiting.At
		}
	}
	if oldest.IsZero() {
		return nil
	}
	return &oldest
}

// vanished reports whether its processes are silent and have not ended in order: they may live without the database.
func (r *consumerRow) vanished() bool { return !r.Runs && !r.Stopped && !r.SeenAt.IsZero() }

// readConsumers lists the consumers that run, or have run, with the messages that wait for them.
func readConsumers(ctx context.Context, c *Console) (list []consumerRow, err error) {
	known, err := c.cfg.Inbox.State().Consumers(ctx)
	if err != nil {
		return nil, err
	}
	stats, err := c.cfg.Inbox.State().Stats(ctx)
	if err != nil {
		return nil, err
	}
	rows := map[string]consumerRow{}
	for _, k := range known {
		rows[k.Consumer] = consumerRow{Stats: state.Stats{Consumer: k.Consumer}, Consumer: k}
	}
	for _, st := range stats {
		rows[st.Consumer] = consumerRow{Stats: st, Consumer: rows[st.Consumer].Consumer}
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		list = append(list, rows[name])
	}
	return list, nil
}

// downs are the findings of consumers that do not run, or do not get on.
func downs(rows []consumerRow, now time.Time) (list []string) {
	for n := range rows {
		list = append(list, rows[n].downs(now)...)
	}
	return list
}

// unknown are the consumers that run, and of which nobody knows what waits at the broker.
func unknown(rows []consumerRow) (names []string) {
	for n := range rows {
		if c := &rows[n]; c.Runs && len(c.Unknown()) > 0 {
			names = append(names, c.Stats.Consumer)
		}
	}
	return names
}

// downs are the findings of a consumer that does not run, or does not get on.
func (r *consumerRow) downs(now time.Time) (list []string) {
	name := r.Stats.Consumer
	if !r.Runs && r.Parked > 0 {
		if r.vanished() {
			return []string{"The processes of " + name + " have vanished, and messages wait for it."}
		}
		return []string{"No process runs " + name + ", and messages wait for it."}
	}
	for _, t := range r.Troubles() {
		waits := ""
		if t.Waiting.Known && t.Waiting.Messages > 0 {
			waits = ", and " + counted(t.Waiting.Messages, "message waits", "messages wait") + " at the broker"
		}
		ago := short(now.Sub(t.Since))
		switch t.Kind {
		case state.TroubleMissing:
			if waits == "" {
				waits = ", and nobody knows what waits for it at the broker"
			}
			if r.vanished() {
				list = append(list, "The processes of "+name+" vanished "+ago+" ago"+waits+".")
			} else {
				list = append(list, "No process has run "+name+" for "+ago+waits+".")
			}
		case state.TroubleAway:
			why := "."
			if t.Error != "" {
				why = ": " + shorten(maxCause, t.Error)
			}
			list = append(list, name+" has had no connection to the broker for "+ago+waits+why)
		case state.TroubleLate:
			list = append(list, name+" has settled nothing for "+ago+waits+".")
		case state.TroublePaused:
			list = append(list, name+" has been paused by its program for "+ago+waits+".")
		}
	}
	return list
}
