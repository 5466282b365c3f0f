package consumer

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/oncebox/oncebox/console/internal/flood"
	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/console/internal/skin"
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/messaging/count"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
)

// Row is a consumer, and the messages that wait for it in the database.
type Row struct {
	state.Stats

	state.Consumer

	// Error is the last error of its handler or its connection, and FailedAt its time, see [ReadWhole]. Error is "" if none is known. Href is the
	// address of its cause, "" for an error of the connection.
	Error, Href string
	FailedAt    time.Time

	// Loads has an entry for each topic at which it is behind, see [ReadWhole].
	Loads []Load

	isOutdated bool // see state.Consumer.IsOutdated
}

// counting stands in place of a number that is older than the last action that changes it.
const counting = "counting"

// Name returns the name that a pause has: for a generation of a read model that of the read model.
func (r *Row) Name() string { return state.Family(r.Stats.Consumer) }

// PageHref returns the address of the page of the consumer.
func (r *Row) PageHref() string { return Href(r.Stats.Consumer) }

// Forms are the buttons that lead to the forms of a consumer, with the form that is open.
type Forms struct {
	Row *Row
	// Token is that of the form, and Open its action, "" for none.
	Token string
	Open  operator.Action
}

// Forms returns the forms of the consumer.
func (r *Row) Forms(token string, open operator.Action) Forms { return Forms{r, token, open} }

// Name returns the name of the consumer to which the action is applied.
func (f Forms) Name() string {
	if f.Open == operator.Forget {
		return f.Row.Stats.Consumer
	}
	return f.Row.Name()
}

// Href returns the address of the form of an action.
func (f Forms) Href(action operator.Action) string { return FormOf(action, f.Row.Stats.Consumer) }

// FormOf returns the address of the form that pauses, resumes or forgets a consumer.
func FormOf(action operator.Action, name string) string {
	return frame.Address(Page, url.Values{Field: {name}, frame.FieldForm: {string(action)}}) + "#" + string(action)
}

// failed notes an error, if it is later than the noted error.
func (r *Row) failed(text, href string, at time.Time) {
	if text != "" && !at.Before(r.FailedAt) {
		r.Error, r.Href, r.FailedAt = text, href, at
	}
}

// State returns the class of the stylesheet for the consumer's state. A consumer that does not run is bad only if messages wait for it, or if it is unknown
// whether they do: it may have been stopped on purpose.
func (r *Row) State() string {
	switch {
	case r.Runs && slices.ContainsFunc(r.Troubles(), stops):
		return skin.Bad
	case r.Runs && len(r.Troubles()) > 0:
		return skin.Warn
	case r.Runs && !r.isConnected() && r.all("away"):
		return skin.Bad
	case r.Runs && (!r.isConnected() || r.Failed > 0 || !flood.Since(&r.Consumer).IsZero()):
		return skin.Warn
	case r.Runs:
		return skin.Good
	case r.Parked > 0 || len(r.Troubles()) > 0:
		return skin.Bad
	default:
		return skin.Plain
	}
}

// stops reports whether a consumer with the trouble handles nothing.
func stops(t state.Trouble) bool { return t.Kind != state.TroubleBehind }

// Word returns the consumer's state, as the page calls it. The first word that fits wins, so the reason why nothing runs comes before complaints about what
// runs.
func (r *Row) Word() string {
	troubles := map[state.TroubleKind]string{
		state.TroubleBehind: "is behind", state.TroubleAway: "no connection", state.TroubleLate: "does not get on",
		state.TroublePaused: "paused", state.TroubleMissing: "does not run",
	}
	switch found := r.Troubles(); {
	case r.Stopped:
		return "stopped"
	case r.vanished():
		return "not seen"
	case !r.Runs:
		return "does not run"
	case r.Pause.IsSet():
		return "paused by " + r.Pause.Actor + ": " + words.Cause(r.Pause.Reason)
	case len(found) > 0:
		return troubles[found[0].Kind]
	case !r.isConnected() && r.all("away"):
		return "no connection"
	case !r.isConnected():
		return "runs in part"
	case !flood.Since(&r.Consumer).IsZero():
		return "many wait"
	case r.Failed > 0:
		return "runs, ordering keys fail"
	default:
		return "runs"
	}
}

// isConnected reports whether all processes of the consumer are connected and not paused.
func (r *Row) isConnected() bool { return r.all("connected", "stored") }

// IsOver reports whether the last error is one of the connection, and all processes are connected again.
func (r *Row) IsOver() bool { return r.Error != "" && r.Href == "" && r.Runs && r.isConnected() }

// all reports whether each process of the consumer is in one of the states. It is true without any process, so callers check Runs first.
func (r *Row) all(states ...string) bool {
	for _, t := range r.Topics {
		for _, p := range t.Processes {
			if !slices.Contains(states, p.State) {
				return false
			}
		}
	}
	return true
}

// AtTopic returns how many messages of one of the consumer's topics wait at the broker.
func (r *Row) AtTopic(w state.Waiting) string {
	switch {
	case r.isOutdated:
		return counting
	case w.Known:
		return w.Precision.Words() + words.Group(w.Messages)
	default:
		return "?"
	}
}

// AtBroker returns how many messages wait at the broker, in all topics of the consumer. "" if there is no broker or it has not answered.
func (r *Row) AtBroker() string {
	switch n, precision, known := r.atBroker(); {
	case r.isOutdated:
		return counting
	case known:
		return precision.Words() + words.Group(n)
	case len(r.Unknown()) > 0:
		return "?"
	default:
		return ""
	}
}

// Waits says how many messages wait for the consumer at the broker and in the database, "" if none does or that is not known.
func (r *Row) Waits() string {
	var parts []string
	if n, precision, known := r.atBroker(); known && n > 0 {
		parts = append(parts, precision.Words()+words.Counted(n, "message waits", "messages wait")+" at the broker")
	}
	if r.Parked > 0 {
		parked := words.UpTo(r.Counted, r.Parked)
		switch {
		case len(parts) > 0:
		case r.Parked == 1:
			parked += " message waits"
		default:
			parked += " messages wait"
		}
		parts = append(parts, parked+" in the database")
	}
	return strings.Join(parts, ", ")
}

// atBroker returns how many messages wait at the broker, in all topics. known is false if there is no broker or it has not answered since
// an operator set messages in motion.
func (r *Row) atBroker() (n int64, precision count.Precision, known bool) {
	known, precision = len(r.Topics) > 0 && !r.isOutdated, count.Exact
	for _, t := range r.Topics {
		precision = max(precision, t.Waiting.Precision)
		known = known && t.Waiting.Known
		n += t.Waiting.Messages
	}
	return n, precision, known
}

// Late returns about how late these messages are: how long the oldest has waited. "" if that is not known, or less than a second.
func (r *Row) Late() string { return lateBy(r.late()) }

func (r *Row) late() (late time.Duration) {
	for n := range r.Topics {
		if w := &r.Topics[n].Waiting; w.Known && !r.isOutdated {
			late = max(late, w.Late())
		}
	}
	return late
}

// lateBy returns a delay in words, "" for less than a second.
func lateBy(d time.Duration) string {
	if d < time.Second {
		return ""
	}
	return "late by about " + words.Short(d)
}

// Asked returns when the broker reported that number, nil if it has not. Topics are asked at different times, and the oldest answer bounds how old the sum
// is.
func (r *Row) Asked() *time.Time {
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
func (r *Row) vanished() bool { return !r.Runs && !r.Stopped && !r.SeenAt.IsZero() }

// Since returns when the consumer came into the state that [Row.Word] names. Zero if that is not known.
func (r *Row) Since() time.Time {
	found, flooded := r.Troubles(), flood.Since(&r.Consumer)
	switch {
	case r.Pause.IsSet():
		return r.Pause.Since
	case !r.Runs:
		return r.SeenAt
	case len(found) > 0:
		return found[0].Since
	case !r.isConnected():
		return r.changed("connected", "stored")
	case !flooded.IsZero():
		return flooded
	case r.Failed > 0:
		return time.Time{} // keys fail and heal one by one
	default:
		return r.changed()
	}
}

// changed returns when the last of its processes came into its state. Processes in one of the states but count for nothing.
func (r *Row) changed(but ...string) (at time.Time) {
	for _, t := range r.Topics {
		for _, p := range t.Processes {
			if p.Since.After(at) && !slices.Contains(but, p.State) {
				at = p.Since
			}
		}
	}
	return at
}

// waiting says how many messages wait at the broker, and how late they are.
func waiting(w *state.Waiting) string {
	text := w.Precision.Words() + words.Counted(w.Messages, "message waits", "messages wait") + " at the broker"
	if late := lateBy(w.Late()); late != "" {
		text += ", " + late
	}
	return text
}

// Finding is what is wrong with a consumer.
type Finding struct {
	Kind           ops.Kind
	Consumer, Text string
}

// down returns the findings about this consumer: that it does not run or makes no progress, or has no connection. A pause is no such finding.
func (r *Row) down(now time.Time) (list []Finding) {
	name := r.Stats.Consumer
	add := func(kind ops.Kind, text string) { list = append(list, Finding{kind, name, text}) }
	if !r.Runs && r.Parked > 0 {
		if r.vanished() {
			add(ops.ConsumerMissing, "The processes of "+name+" have vanished, and messages wait for it.")
		} else {
			add(ops.ConsumerMissing, "No process runs "+name+", and messages wait for it.")
		}
		return list
	}
	for _, t := range r.Troubles() {
		waits := ""
		if t.Waiting.Known && t.Waiting.Messages > 0 {
			waits = ", and " + waiting(&t.Waiting)
		}
		ago := words.Short(now.Sub(t.Since))
		switch t.Kind {
		case state.TroubleMissing:
			if waits == "" {
				waits = ", and it is unknown how many messages wait for it at the broker"
			}
			if r.vanished() {
				add(ops.ConsumerMissing, "The processes of "+name+r.at(t.Topic)+" vanished "+ago+" ago"+waits+".")
			} else {
				add(ops.ConsumerMissing, "No process has run "+name+r.at(t.Topic)+" for "+ago+waits+".")
			}
		case state.TroubleAway:
			why := "."
			if t.Error != "" {
				why = ": " + words.Cause(t.Error)
			}
			lacks := " has had no connection to the broker"
			if t.Partly {
				lacks = " has lacked some of its connections to the broker"
			}
			add(ops.ConsumerAway, name+lacks+r.at(t.Topic)+" for "+ago+waits+why)
		case state.TroubleLate:
			add(ops.ConsumerLate, name+" has settled nothing"+r.at(t.Topic)+" for "+ago+waits+".")
		case state.TroublePaused:
			add(ops.ConsumerPaused, name+" has been paused for "+ago+": "+words.Cause(t.Error)+waits+".")
		case state.TroubleBehind: // a finding of its own, see package flood
		}
	}
	return list
}

// at names a topic of a consumer that has several.
func (r *Row) at(topic string) string {
	if len(r.Topics) < 2 || topic == "" {
		return ""
	}
	return " at the topic " + topic
}
