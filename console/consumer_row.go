package console

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/inbox/state"
)

// consumerRow is a consumer, and the messages that wait for it in the database.
type consumerRow struct {
	state.Stats

	state.Consumer
}

// State returns the class of the stylesheet for the consumer's state. A consumer that does not run is bad only if messages wait for it, or if it is unknown
// whether they do: it may have been stopped on purpose.
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

// Word returns the consumer's state, as the page calls it. The first word that fits wins, so the reason why nothing runs comes before complaints about what
// runs.
func (r *consumerRow) Word() string {
	troubles := map[state.TroubleKind]string{
		state.TroubleAway: "no connection", state.TroubleLate: "does not get on", state.TroublePaused: "paused", state.TroubleMissing: "does not run",
	}
	switch found := r.Troubles(); {
	case r.Stopped:
		return "stopped"
	case r.vanished():
		return "not seen"
	case !r.Runs:
		return "does not run"
	case r.Pause.IsSet():
		return "paused by " + r.Pause.Actor + ": " + words.Shorten(maxCause, r.Pause.Reason)
	case len(found) > 0:
		return troubles[found[0].Kind]
	case !r.isConnected():
		return "runs in part"
	case r.Failed > 0:
		return "runs, keys fail"
	default:
		return "runs"
	}
}

// isConnected reports whether all processes of the consumer are connected and not paused.
func (r *consumerRow) isConnected() bool { return r.all("connected", "stored") }

// all reports whether each process of the consumer is in one of the states. It is true without any process, so callers check Runs first.
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

// AtBroker returns how many messages wait at the broker, in all topics of the consumer. "" if there is no broker or it has not answered.
func (r *consumerRow) AtBroker() string {
	n, known := int64(0), len(r.Topics) > 0
	for _, t := range r.Topics {
		known = known && t.Waiting.Known
		n += t.Waiting.Messages
	}
	switch {
	case known:
		return words.Group(n)
	case len(r.Unknown()) > 0:
		return "?"
	default:
		return ""
	}
}

// Asked returns when the broker reported that number, nil if it has not. Topics are asked at different times, and the oldest answer bounds how old the sum
// is.
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

// vanished reports whether the consumer's processes are silent and have not shut down in order. They may still be alive, without access
// to the database.
func (r *consumerRow) vanished() bool { return !r.Runs && !r.Stopped && !r.SeenAt.IsZero() }

// readConsumers lists the consumers that run or have run, with the messages that wait for them. It merges two sources, because a consumer may be in one of
// them only: without any message, or without a known process.
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

// downs returns the findings about consumers that do not run or make no progress.
func downs(rows []consumerRow, now time.Time) (list []string) {
	for n := range rows {
		list = append(list, rows[n].downs(now)...)
	}
	return list
}

// unknown returns the running consumers whose broker has not reported how many messages wait.
func unknown(rows []consumerRow) (names []string) {
	for n := range rows {
		if c := &rows[n]; c.Runs && len(c.Unknown()) > 0 {
			names = append(names, c.Stats.Consumer)
		}
	}
	return names
}

// downs returns the findings about this consumer: that it does not run or makes no progress.
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
			waits = ", and " + words.Counted(t.Waiting.Messages, "message waits", "messages wait") + " at the broker"
		}
		ago := words.Short(now.Sub(t.Since))
		switch t.Kind {
		case state.TroubleMissing:
			if waits == "" {
				waits = ", and it is unknown how many messages wait for it at the broker"
			}
			if r.vanished() {
				list = append(list, "The processes of "+name+" vanished "+ago+" ago"+waits+".")
			} else {
				list = append(list, "No process has run "+name+" for "+ago+waits+".")
			}
		case state.TroubleAway:
			why := "."
			if t.Error != "" {
				why = ": " + words.Shorten(maxCause, t.Error)
			}
			list = append(list, name+" has had no connection to the broker for "+ago+waits+why)
		case state.TroubleLate:
			list = append(list, name+" has settled nothing for "+ago+waits+".")
		case state.TroublePaused:
			list = append(list, name+" has been paused for "+ago+": "+words.Shorten(maxCause, t.Error)+waits+".")
		}
	}
	return list
}
