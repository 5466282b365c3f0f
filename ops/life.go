package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/internal/span"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

// Life is the history of an event, as far as tables of this service show it.
type Life struct {
	// ID is the id of the event. MessageKey identifies it in the inbox, for the calls of package inbox.
	ID, MessageKey string
	// Type, Topic, Tenant and Source describe the event. Type and Topic are empty if only an entry of the
	// inbox is left.
	Type, Topic, Tenant, Source string
	AggregateType, AggregateID  string
	AggregateVersion            int64
	// Sequence is its number in the outbox that has recorded it. 0: unknown.
	Sequence int64
	// Key is its ordering key, "" for an event without order.
	Key string
	// Metadata is the event's metadata. It may contain any text.
	Metadata event.Metadata
	// TraceID is the id of the trace in which it was recorded, "" if there was none.
	TraceID string
	// Outbox lists its places in the outbox, usually one. The list is empty if the event was recorded
	// elsewhere, or was removed.
	Outbox []outboxstate.Located
	// Consumers lists the consumers of this database that have received it, by their names.
	Consumers []state.Located
	// History lists everything that has happened to the event, ordered by time. A consumer may have received it before
	// the outbox has recorded that it was published.
	History []Moment
	// Elsewhere is true if another service, Source, has recorded the event: the first part of its life is
	// in the outbox of that service.
	Elsewhere bool
	// Gone is a sentence about what may be missing here, and why; "" if nothing is.
	Gone string
}

// Moment is something that happened to an event.
type Moment struct {
	// At is the time, by the clock of the database. Zero means that it is the present state.
	At time.Time
	// After is true if it happened after At, and the time itself is not kept.
	After bool
	// Before is true if it happened before At, and neither the time nor the error is kept.
	Before bool
	What   What
	// Consumer is the consumer at which it happened, "" for the outbox.
	Consumer string
	// Attempts and Error are the values at that time.
	Attempts int
	Error    string
	// Until is when it is tried next, or until when it waits. Zero: unknown, or an operator has to decide.
	Until time.Time
	// Behind is the event or message of its key that it waits for.
	Behind string
	// Step is the name of a step.
	Step string
	// Actor, Action and Reason come from an entry of the audit.
	Actor  string
	Action operator.Action
	Reason string
}

// What is a kind of thing that can happen to an event.
type What string

// The values of What.
const (
	Recorded  What = "recorded"      // stored together with the data that it announces
	Waiting   What = "waiting"       // not published yet, or waiting at a consumer
	Delayed   What = "delayed"       // waits for its time
	Paused    What = "tenant paused" // waits until an operator resumes its tenant: see Actor and Reason
	Refused   What = "refused"       // the broker has refused it; it is tried again
	Published What = "published"     // the broker has confirmed it
	Dead      What = "dead"          // given up; of a dead letter that was replayed, edited or discarded only the decision is kept, see Before
	Received  What = "received"      // a consumer has received it, and did not handle it at once
	Tried     What = "tried"         // a consumer has tried to handle it; it is still at the broker
	Failing   What = "failing"       // a consumer fails to handle it, and tries again
	StepDone  What = "step done"     // a consumer has completed a step of it
	Handled   What = "handled"       // a consumer has handled it; if it was parked before and no operator decided, the time is that of the parking
	Decided   What = "decided"       // an operator has decided about it: see Actor, Action and Reason
)

// ErrUnknown means that no table has the event: it was never here, or it was removed. The text names the
// retention that may have removed it.
var ErrUnknown = errors.New("no table has an event or message with this id")

// mostDecisions is how many entries of the audit are read for an event, and for a message.
const mostDecisions = 100

// Life returns the history of the event or message with this id or message key. It returns several lives if tenants or
// sources use the same id, and [ErrUnknown] if no table has it.
//
// An id of another system that is not a UUIDv7 is stored in the inbox only together with its source: give the sources
// that it may have, or the message key. [outbox.Store.Locate] describes the cost.
func (v *View) Life(ctx context.Context, id string, sources ...string) ([]Life, error) {
	found := &lives{id: id}
	if uuid.Validate(id) == nil {
		// The id may be a message key itself: for an event of an outbox both are the same.
		found.keys = append(found.keys, strings.ToLower(id))
		events, err := v.events(ctx, id)
		if err != nil {
			return nil, err
		}
		for n := range events {
			found.event(&events[n])
			sources = append(sources, events[n].Source)
		}
	}
	// An id of another system is hashed with its source, so it is looked for under each source that it may have.
	for _, source := range sources {
		found.keys = append(found.keys, state.MessageKey(source, id))
	}
	if len(found.keys) == 0 {
		return nil, fmt.Errorf("ops: %q is not a UUID: give the source of the message as well, or its message key: %w", id, ErrUnknown)
	}
	slices.Sort(found.keys)
	found.keys = slices.Compact(found.keys)
	messages, err := v.messages(ctx, found.keys)
	if err != nil {
		return nil, err
	}
	for n := range messages {
		found.message(&messages[n])
	}
	if err := v.decisions(ctx, found); err != nil {
		return nil, err
	}
	if err := v.paused(ctx, found); err != nil {
		return nil, err
	}
	// How long published events are kept decides what the absence of an event means.
	kept := outbox.NoRetention
	if v.outbox != nil {
		if kept, err = v.outbox.Upkeep().KeptFor(ctx); err != nil {
			return nil, err
		}
	}
	if len(found.list) == 0 {
		return nil, fmt.Errorf("ops: %s: %w; %s", id, ErrUnknown, v.retention(kept))
	}
	own, err := v.ownSources(ctx)
	if err != nil {
		return nil, err
	}
	// An event is from elsewhere only if its source is known, and no service of this database has it. An event that an
	// operator deleted had its place here.
	for _, l := range found.list {
		l.Elsewhere = len(l.Outbox) == 0 && l.Source != "" && len(own) > 0 && !slices.Contains(own, l.Source) && !l.deleted()
	}
	return v.finish(found, kept), nil
}

// events finds the event in the outbox. It reads the whole day of the id, because there is no index by id.
func (v *View) events(ctx context.Context, id string) ([]outboxstate.Located, error) {
	if v.outbox == nil {
		return nil, nil
	}
	return v.outbox.State().Locate(ctx, id)
}

func (v *View) messages(ctx context.Context, keys []string) ([]state.Located, error) {
	if v.inbox == nil {
		return nil, nil
	}
	return v.inbox.State().Locate(ctx, keys...)
}

// decisions adds the actions of operators to the lives.
func (v *View) decisions(ctx context.Context, found *lives) error {
	for _, id := range found.keys {
		entries, err := v.Audit(ctx, operator.AuditFilter{EventID: id}, nil, mostDecisions)
		if err != nil {
			return err
		}
		for n := range entries {
			found.decided(&entries[n])
		}
	}
	return nil
}

// ownSources returns the names of the services that use this database: the configured source of the outbox,
// and the owners of the consumers.
func (v *View) ownSources(ctx context.Context) (own []string, err error) {
	if v.outbox != nil && v.outbox.Source() != "" {
		own = append(own, v.outbox.Source())
	}
	if v.inbox == nil {
		return own, nil
	}
	owners, err := v.inbox.Owners(ctx)
	return slices.AppendSeq(own, maps.Values(owners)), err
}

// finish sorts the histories, and adds what may be missing.
func (v *View) finish(found *lives, kept time.Duration) []Life {
	list := make([]Life, len(found.list))
	for n, l := range found.list {
		slices.SortStableFunc(l.History, func(a, b Moment) int {
			// One of the two has no time, so only their order counts, and not the difference.
			if a.At.IsZero() != b.At.IsZero() {
				return cmp.Compare(b.At.Unix(), a.At.Unix()) // the present state comes last
			}
			return a.At.Compare(b.At)
		})
		// The entry of a message that an operator discarded stays, so that it is not handled if it comes again.
		l.History = slices.DeleteFunc(l.History, func(m Moment) bool { return m.What == Handled && l.discarded(m.Consumer) })
		l.handledLater()
		switch {
		case l.Elsewhere:
		case len(l.Outbox) == 0 && l.deleted():
			l.Gone = "It was deleted before it was published"
		case len(l.Outbox) == 0:
			l.Gone = "The outbox of this database no longer has the event, or never had it: " + v.retention(kept)
		case len(l.Consumers) == 0 && l.Outbox[len(l.Outbox)-1].Status == outboxstate.StatusSent:
			l.Gone = "No consumer of this database has handled it yet, or its entry was already deleted: " + v.retention(kept)
		}
		list[n] = *l
	}
	return list
}

// deleted reports whether an operator has cancelled or discarded the event in the outbox, and nothing
// happened to it afterwards.
func (l *Life) deleted() bool {
	if len(l.History) == 0 {
		return false
	}
	last := &l.History[len(l.History)-1]
	return last.What == Decided && last.Consumer == "" && (last.Action == operator.Cancel || last.Action == operator.Discard)
}

// discarded reports whether the last decision about the message at this consumer was to discard it.
func (l *Life) discarded(consumer string) bool {
	for _, m := range slices.Backward(l.History) {
		if m.What == Decided && m.Consumer == consumer {
			return m.Action == operator.Discard
		}
	}
	return false
}

// handledLater corrects the times of messages that an operator sent to their consumer once more. The entry of such a message has the time at which it came,
// and it was handled after the last decision only.
func (l *Life) handledLater() {
	for n := range l.History {
		came := l.History[n]
		if came.What != Handled || came.After {
			continue
		}
		for k := len(l.History) - 1; k > n; k-- {
			decided := &l.History[k]
			if decided.Consumer != came.Consumer || !slices.Contains([]operator.Action{operator.Replay, operator.Edit, operator.Retry}, decided.Action) {
				continue
			}
			l.History[n].What = Received
			came.At, came.After = decided.At, true
			l.History = slices.Insert(l.History, k+1, came)
			break
		}
	}
}

// retention says how long things are kept, which is the usual reason why something is not found.
func (v *View) retention(kept time.Duration) string {
	events := "published events are " + Kept(kept)
	if v.inbox == nil {
		return events
	}
	return events + ", and the entries of handled messages are " + Kept(v.inbox.Retention())
}

// Kept returns in words how long something is kept: "kept for 3 days", "kept for ever" or "not kept".
func Kept(d time.Duration) string {
	switch {
	case d == outbox.NoRetention:
		return "not kept"
	case d < 0:
		return "kept for ever"
	default:
		return "kept for " + span.Text(d)
	}
}

// Find finds events and messages by what an operator knows of them: an id, an aggregate id, a correlation id or a causation id, or the beginning of one; an
// ordering key; or a tenant. It returns at most limit (0: 100).
//
// A complete id of an event that is known is answered at once, and alone. For other texts it reads all that waits or is dead, and then the published events
// back from the time before on (zero: from now on) for about five seconds, because no index fits all properties. [Findings.Back] is where a further search
// goes on; it is always earlier than before. Of messages from elsewhere that were handled only the key is kept, so they are found by their id alone.
func (v *View) Find(ctx context.Context, text string, before time.Time, limit int) (Findings, error) {
	text = strings.TrimSpace(text)
	if limit <= 0 {
		limit = 100
	}
	if uuid.Validate(text) == nil && before.IsZero() {
		lives, err := v.Life(ctx, text)
		if err == nil {
			return ofLives(lives), nil
		}
		if !errors.Is(err, ErrUnknown) {
			return Findings{}, err
		}
	}
	return find(ctx, v, text, before, limit)
}
