package ops

import (
	"context"
	"slices"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/messaging/count"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

// Kind is the kind of a stuck thing.
type Kind string

// The kinds, and what an operator can do about each.
const (
	// RelayMissing: events wait, and no process publishes them. Start one.
	RelayMissing Kind = "relay missing"
	// RelayLate: events should have left more than a minute ago, and a relay has their lanes. The broker is in trouble, or the relay does not keep up.
	RelayLate Kind = "relay late"
	// ConsumerMissing: no process runs a consumer, or handles its Topic if there is one, and messages are parked or
	// wait at the broker, or may do so. Start a process, or declare that the consumer is gone (inbox/consumers.Consumers.Forget).
	ConsumerMissing Kind = "consumer missing"
	// ConsumerAway: processes run a consumer, but none has been connected to the broker for half a minute, or its
	// subscription no longer exists there. They connect again by themselves; mend the broker or the network.
	ConsumerAway Kind = "consumer away"
	// ConsumerLate: a consumer is connected, messages have waited for more than a minute, and none was settled. A
	// handler hangs, or the broker delivers nothing.
	ConsumerLate Kind = "consumer late"
	// ConsumerBehind: a consumer handles messages, and more than 1,000 have waited at the broker for 30 seconds. See [state.TroubleBehind].
	ConsumerBehind Kind = "consumer behind"
	// ConsumerPaused: an operator has paused a consumer for longer than [LongPause], without an end. Resume it (inbox.Inbox.Consumers).
	ConsumerPaused Kind = "consumer paused"
	// EventDead: the relay has given an event up. Replay or discard it.
	EventDead Kind = "event dead"
	// EventFailing: the broker refuses an event, which is tried again. Mend the cause.
	EventFailing Kind = "event failing"
	// MessageDead: a consumer has given a message up. Replay or discard it.
	MessageDead Kind = "message dead"
	// MessageFailing: a handler fails, and the message is tried again. Mend the cause; package inbox/parked
	// can try it at once.
	MessageFailing Kind = "message failing"
	// StepUnknown: it is unknown whether a step of a request was done, and requests with its key are refused. Find out,
	// and record it with idempotency.Store.Resolve.
	StepUnknown Kind = "step unknown"
	// TenantPaused: an operator has paused a tenant for longer than [LongPause]. Resume it (outbox.Store.Tenants().Resume).
	TenantPaused Kind = "tenant paused"
)

// LongPause is how long a tenant may be paused before the pause counts as forgotten.
const LongPause = 24 * time.Hour

// LongTransaction is the age from which an open transaction is a fault: it keeps VACUUM from removing published events,
// so the outbox becomes slower. See [outboxstate.Stats].
const LongTransaction = 10 * time.Minute

// Action is something that an operator can do, with a command or a button.
type Action string

// The actions.
const (
	StartRelay    Action = "start relay"    // start a process with the relay
	StartConsumer Action = "start consumer" // start a process with the consumer
	Replay        Action = "replay"         // publish or handle a dead letter again
	Edit          Action = "edit"           // replay a dead letter with another payload
	Discard       Action = "discard"        // delete a dead letter
	RetryNow      Action = "retry"          // try a message at once
	GiveUp        Action = "give up"        // make a message a dead letter
	Resolve       Action = "resolve"        // record whether a step was done
	Resume        Action = "resume"         // publish the events of a tenant again
)

// Actions returns what an operator can do about the kind, the usual action first. Empty: once the cause is
// mended, it continues by itself.
func (k Kind) Actions() []Action {
	switch k {
	case RelayMissing:
		return []Action{StartRelay}
	case ConsumerMissing:
		return []Action{StartConsumer}
	case EventDead, MessageDead:
		return []Action{Replay, Edit, Discard}
	case MessageFailing:
		return []Action{RetryNow, GiveUp}
	case StepUnknown:
		return []Action{Resolve}
	case TenantPaused:
		return []Action{Resume}
	default:
		return nil
	}
}

// Filter selects stuck things that match every field that is set. The zero filter selects all. A thing without the property is not selected: a request has no
// topic, and an event of the outbox no consumer. A relay or consumer that does not run is always selected, because it affects all events.
type Filter struct {
	Tenant, Topic, Consumer string
}

// Stuck is something that waits too long, or for a decision.
type Stuck struct {
	Kind Kind
	// Since is when it began to wait, by the clock of the database. Zero if that is not known.
	Since time.Time
	// Fingerprint is that of the error of an event or message, see package operator/failures.
	Fingerprint string
	// ID is the id of the event, or the hash of an idempotency key.
	ID string
	// MessageKey identifies a message in calls of package inbox.
	MessageKey string
	// Relay is the process that has the lane of the oldest waiting event, or that had it and vanished. ""
	// if it is unknown.
	Relay string
	// Consumer is the consumer of a message.
	Consumer string
	// Type, Topic and Tenant describe the event or message.
	Type, Topic, Tenant string
	// Source is the service that has recorded the event or message.
	Source string
	// Key is the ordering key, "" for an event or message without order.
	Key string
	// Holds is true if later events or messages of the key wait behind this one.
	Holds bool
	// Step is the name of a step, and Label what it is about. Request is the method and path of its request. Caller is
	// the sender's name in the service, and Principal the beginning of the sender's hash.
	Step, Label, Request, Caller, Principal string
	// Attempts counts the tries.
	Attempts int
	// Limit says in words when a failing message is given up. "": that is not known.
	Limit string
	// Ahead says in words for how long a failing message is tried again by itself. "": that is not known.
	Ahead string
	// FailedBy are the processes whose tries failed last, each with its version if that is known, by name. Only failing messages have them.
	FailedBy []string
	// Next is when the next try is. Zero: an operator has to decide first.
	Next time.Time
	// Error is the last error, or the state of a consumer that makes no progress. It may contain any text.
	Error string
	// Vanished is true if the processes of a missing relay or consumer did not shut down in order: they were killed, are frozen, or cannot reach the database.
	Vanished bool
	// Connections is the number of consumers that the broker has connected for a missing consumer.
	Connections int
	// Backlog is the number of messages that wait for the consumer at the broker, at present if BacklogKnown, else when it was last known. Precision says
	// how far to trust it. Late is how long the oldest of these messages had waited then. 0: that is not known.
	Backlog      int64
	Precision    count.Precision
	BacklogKnown bool
	Late         time.Duration
}

// Stuck lists the stuck things that the filter selects, at most limit of each kind (0: 100), the oldest first. Relays and consumers that do not run or make no
// progress come first. Events that wait for their turn, or for their time, are not stuck. Failures that an operator has archived are left out.
//
// It reads at most [Looked] keys of failing messages and, with a filter, of failing events.
func (v *View) Stuck(ctx context.Context, filter Filter, limit int) ([]Stuck, error) {
	if limit <= 0 {
		limit = 100
	}
	list, err := v.stuck(ctx, filter, limit, v.reads())
	if err != nil {
		return nil, err
	}
	limits, err := v.limits(ctx)
	for n := range list {
		list[n].limit(limits)
	}
	if err != nil || !slices.ContainsFunc(list, func(s Stuck) bool { return s.Fingerprint != "" }) {
		return list, err
	}
	groups, err := v.Failures().List(ctx)
	groups = slices.DeleteFunc(groups, func(g failures.Group) bool { return !g.IsArchived() })
	return slices.DeleteFunc(list, func(s Stuck) bool { return isArchived(groups, s.Fingerprint) }), err
}

// reading reads at most limit stuck things of one kind.
type reading func(ctx context.Context, filter Filter, limit int) ([]Stuck, error)

// reads returns the readings of all kinds.
func (v *View) reads() []reading {
	return []reading{v.loadedParts, v.deadEvents, v.failingEvents, v.deadMessages, v.failingMessages, v.unknownSteps, v.longPauses}
}

func (v *View) stuck(ctx context.Context, filter Filter, limit int, reads []reading) (list []Stuck, err error) {
	for _, read := range reads {
		found, err := read(ctx, filter, limit)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	// The sort is stable, so things of one age stay in the order of the readings.
	slices.SortStableFunc(list, func(a, b Stuck) int { return byAge(&a, &b) })
	return list, nil
}

// byAge puts parts that do not run first, then the oldest.
func byAge(a, b *Stuck) int {
	if before, after := isPart(a.Kind), isPart(b.Kind); before != after {
		if before {
			return -1
		}
		return 1
	}
	return a.Since.Compare(b.Since)
}

// isPart reports whether the stuck thing is a relay or a consumer, on which everything else depends.
func isPart(k Kind) bool {
	switch k {
	case RelayMissing, RelayLate, ConsumerMissing, ConsumerAway, ConsumerLate, ConsumerBehind, ConsumerPaused:
		return true
	default:
		return false
	}
}

// selects checks the fields for which the tables have no index.
func (f Filter) selects(s *Stuck) bool {
	return (f.Tenant == "" || s.Tenant == f.Tenant) && (f.Topic == "" || s.Topic == f.Topic) && (f.Consumer == "" || s.Consumer == f.Consumer)
}

// few returns the first selected things of a list.
func (f Filter) few(list []Stuck, limit int) []Stuck {
	list = slices.DeleteFunc(list, func(s Stuck) bool { return !f.selects(&s) })
	return list[:min(len(list), limit)]
}

// parts finds relays and consumers that do not run or make no progress.
func (v *View) parts(ctx context.Context, filter Filter, limit int) (list []Stuck, err error) {
	var overdue []outboxstate.Overdue
	if v.outbox != nil {
		if overdue, err = v.outbox.State().Overdue(ctx); err != nil {
			return nil, err
			// A lane may have an owner whose lease has ended: such a relay has vanished and is not late.
		}
	}
	for _, o := range overdue {
		kind := RelayMissing
		if o.Relayed {
			kind = RelayLate
		}
		list = append(list, Stuck{Kind: kind, Since: o.Since, Relay: o.Owner, Error: o.Error, Vanished: kind == RelayMissing && o.Owner != ""})
	}
	topics, err := v.absentTopics(ctx, filter)
	if err != nil {
		return nil, err
	}
	consumers, err := v.stuckConsumers(ctx, filter)
	// Without this, the same absence would be listed once for parked messages and once for messages at the broker.
	topics = slices.DeleteFunc(topics, func(t Stuck) bool { // the finding about the consumer also covers its messages at the broker
		return slices.ContainsFunc(consumers, func(c Stuck) bool { return c.Kind == t.Kind && c.Consumer == t.Consumer && c.Topic == t.Topic })
	})
	list = append(append(list, topics...), consumers...)
	byConsumer(list)
	return list[:min(len(list), limit)], err
}

// absentTopics finds topics that no process handles although their consumer runs.
func (v *View) absentTopics(ctx context.Context, filter Filter) (list []Stuck, err error) {
	if v.inbox == nil {
		return nil, nil
	}
	topics, err := v.inbox.State().AbsentTopics(ctx)
	for _, a := range topics {
		s := Stuck{Kind: ConsumerMissing, Consumer: a.Consumer, Topic: a.Topic, Since: a.Since}
		// An absent topic concerns all tenants, so the tenant of the filter does not count.
		if filter.Tenant = ""; filter.selects(&s) {
			list = append(list, s)
		}
	}
	return list, err
}

// deadEvents has no filter by consumer: events die before any consumer gets them.
func (v *View) deadEvents(ctx context.Context, filter Filter, limit int) ([]Stuck, error) {
	if filter.Consumer != "" || v.outbox == nil {
		return nil, nil
	}
	page, err := v.outbox.Dead().List(ctx, operator.DeadFilter{TenantID: filter.Tenant, Topic: filter.Topic}, nil, limit)
	list := make([]Stuck, len(page))
	for n := range page {
		d := &page[n]
		list[n] = ofEvent(EventDead, &d.Row, Stuck{Since: d.DiedAt, Error: d.Error, Fingerprint: d.Fingerprint, Holds: d.Holds})
	}
	return list, err
}

// failingEvents has to read more with a filter, because the filter is applied after the reading.
func (v *View) failingEvents(ctx context.Context, filter Filter, limit int) ([]Stuck, error) {
	look := limit
	switch {
	case filter.Consumer != "" || v.outbox == nil:
		return nil, nil
	// The refused events of other topics would otherwise fill the limit.
	case filter != Filter{}:
		look = max(limit, Looked)
	}
	page, err := v.outbox.State().Failing(ctx, look)
	list := make([]Stuck, len(page))
	for n := range page {
		f := &page[n]
		list[n] = ofEvent(EventFailing, &f.Row, Stuck{
			Since: f.CreatedAt, Next: f.RetryAfter, Error: f.Error, Fingerprint: f.Fingerprint, Holds: f.Key != "",
		})
	}
	return filter.few(list, limit), err
}

func ofEvent(kind Kind, r *outboxstate.Row, s Stuck) Stuck {
	s.Kind, s.ID, s.Type, s.Topic, s.Tenant, s.Key, s.Attempts = kind, r.ID, r.Type, r.Topic, r.TenantID, r.Key, r.RetryCount+r.Crashes
	return s
}

// deadMessages lists the dead letters of consumers. Its list applies the whole filter in the database.
func (v *View) deadMessages(ctx context.Context, filter Filter, limit int) ([]Stuck, error) {
	if v.inbox == nil {
		return nil, nil
	}
	page, err := v.inbox.Dead().List(ctx, operator.DeadFilter{Consumer: filter.Consumer, TenantID: filter.Tenant, Topic: filter.Topic}, nil, limit)
	list := make([]Stuck, len(page))
	for n := range page {
		d := &page[n]
		list[n] = ofMessage(MessageDead, d.Key, &d.Envelope, Stuck{
			Since: d.DiedAt, Attempts: d.Attempts, Error: d.Error, Fingerprint: d.Fingerprint, Holds: d.Holds,
		})
	}
	return list, err
}

// failingMessages reads only the first message of each key. The others fail because of it, or were not tried.
func (v *View) failingMessages(ctx context.Context, filter Filter, limit int) ([]Stuck, error) {
	if v.inbox == nil {
		return nil, nil
	}
	first := parked.Filter{Consumer: filter.Consumer, TenantID: filter.Tenant, Topic: filter.Topic, State: parked.KeyFailed, FirstOnly: true}
	// The list is ordered by key and not by age, so the oldest of all can only be found by reading many.
	page, err := v.inbox.Parked().List(ctx, first, nil, max(limit, Looked)) // ordered by key
	list := make([]Stuck, len(page))
	for n := range page {
		list[n] = stuckMessage(&page[n])
	}
	slices.SortStableFunc(list, func(a, b Stuck) int { return a.Since.Compare(b.Since) })
	return filter.few(list, limit), err
}

// stuckMessage returns a failing message as a stuck thing.
func stuckMessage(p *parked.Message) Stuck {
	return ofMessage(MessageFailing, p.Key, &p.Envelope, Stuck{
		Since: p.ParkedAt, Attempts: p.Attempts, Next: p.DueAt, Error: p.Error, Fingerprint: p.Fingerprint, Holds: p.OrderingKey != "",
		FailedBy: processesOf(p.FailedBy),
	})
}

// processesOf returns the process as a list, which is empty if it is not known.
func processesOf(name string) []string {
	if name == "" {
		return nil
	}
	return []string{name}
}

// limit sets when the consumer of a failing message gives it up, and what happens until then.
func (s *Stuck) limit(limits map[string]operator.Limit) {
	if l, known := limits[state.Family(s.Consumer)]; known && s.Kind == MessageFailing {
		s.Limit, s.Ahead = l.Text(s.Attempts, s.Since), l.Ahead(s.Attempts, s.Since)
	}
}

// limits reads when the consumers give messages up.
func (v *View) limits(ctx context.Context) (map[string]operator.Limit, error) {
	if v.inbox == nil {
		return nil, nil
	}
	return v.inbox.State().Limits(ctx)
}

func ofMessage(kind Kind, ref operator.MessageRef, e *event.Envelope, s Stuck) Stuck {
	s.Kind, s.ID, s.MessageKey, s.Consumer = kind, e.ID, ref.MessageKey, ref.Consumer
	s.Type, s.Topic, s.Tenant, s.Source, s.Key = e.Type, e.Topic, e.TenantID, ref.Source, e.OrderingKey()
	return s
}

// unknownSteps ignores a filter by topic or consumer in one way: requests have neither, so nothing is selected.
func (v *View) unknownSteps(ctx context.Context, filter Filter, limit int) ([]Stuck, error) {
	if filter.Topic != "" || filter.Consumer != "" || v.keys == nil {
		return nil, nil
	}
	page, err := v.keys.Unknown(ctx, v.db, filter.Tenant, limit)
	list := make([]Stuck, len(page))
	for n, u := range page {
		list[n] = Stuck{Kind: StepUnknown, Since: u.BegunAt, ID: u.Key, Tenant: u.Tenant, Attempts: u.Epoch}
		list[n].Step, list[n].Label, list[n].Request, list[n].Caller, list[n].Principal = u.Step, u.Label, u.Request, u.Caller, u.Principal
	}
	return list, err
}
