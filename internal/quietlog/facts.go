package quietlog

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/oncebox/oncebox/internal/cause"
)

// facts are the attributes of a record that decide which group it belongs to.
type facts struct {
	failed   bool // the record has an error
	reason   string
	away     string
	late     bool // a timeout that does not name the server
	route    bool // the record is about a request
	consumer string
	user     string        // the consumer or component concerned, for the list in a group's line
	place    []string      // other attributes that name a place, as name=value
	kinds    []string      // types of events; they do not separate groups, because all types have the same reason to fail
	wait     time.Duration // pause before the next try
}

// many are names of attributes that differ for each event, message, request or connection, and attributes
// that repeat others in other words.
//
//nolint:gochecknoglobals // a constant list
var many = []string{
	"id", "key", "encryption_key", "message_key", "ordering_key", "tenant", "tenants", "aggregate_id", "events", "ref", "xid", "stack", "mend", "name",
	"producer_name", "cnx", "local_addr", "remote_addr",
}

// waits are names of attributes with the pause before the next try.
//
//nolint:gochecknoglobals // a constant list
var waits = []string{"wait", "pause"}

// add sorts an attribute: it is the error, a pause, the place, or it does not count. Attributes that are no text, such
// as numbers and times, never separate groups.
func (f *facts) add(a slog.Attr) {
	value := a.Value.Resolve()
	switch {
	case a.Key == "error":
		f.fail(value)
	case value.Kind() == slog.KindDuration && slices.Contains(waits, a.Key):
		f.wait = max(f.wait, value.Duration())
	case value.Kind() != slog.KindString || slices.Contains(many, a.Key):
	case a.Key == "consumer":
		f.consumer, f.user = value.String(), value.String()
	case a.Key == "component":
		f.user = value.String()
	case a.Key == "type" || a.Key == "aggregate_type":
		f.kinds = append(f.kinds, value.String())
	default:
		f.route = f.route || a.Key == "route"
		f.place = append(f.place, a.Key+"="+cause.Of(value.String()))
	}
}

// fail notes the error and whether it means that a service is down. A nil error is an attribute without a
// value, and no failure.
func (f *facts) fail(value slog.Value) {
	err, is := value.Any().(error)
	switch {
	case value.Any() == nil:
		return
	case is:
		f.away, f.late = awayBy(err), isLate(err)
	}
	f.failed = true
	// While the service is down, its errors differ from one call to the next, and mean the same.
	if f.away == "" {
		f.reason = cause.Of(value.String())
	}
}

// clone returns a copy to which attributes can be added.
func (f *facts) clone() facts {
	out := *f
	out.place, out.kinds = slices.Clip(f.place), slices.Clip(f.kinds)
	return out
}

// key identifies a group.
type key struct {
	level   slog.Level
	away    string
	message string
	reason  string
	place   string
}

// keyOf returns the key of a record's group. message is the record's message without numbers.
func keyOf(level slog.Level, message string, f *facts) key {
	switch {
	// Lines at INFO that something is back are counted by message, because they report different parts.
	case f.away != "" && level < slog.LevelWarn:
		return key{level: level, away: f.away, message: message}
	case f.away != "":
		return key{level: level, away: f.away}
	// Lines of a consumer at WARN with one reason are one group, whatever their messages. An ERROR asks somebody for
	// something, so its message counts as well.
	case f.failed && f.consumer != "" && level < slog.LevelError:
		return key{level: level, reason: f.reason, place: f.consumer}
	case f.failed && f.consumer != "":
		return key{level: level, message: message, reason: f.reason, place: f.consumer}
	}
	place := append(slices.Clip(f.place), f.consumer)
	// Without an error the type of the event is all that separates one line from another.
	if !f.failed {
		place = append(place, f.kinds...)
	}
	return key{level: level, message: message, reason: f.reason, place: strings.Join(place, "\n")}
}
