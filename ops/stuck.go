package ops

import (
	"context"
	"slices"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/operator"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

// Kind says what is stuck.
type Kind string

// The kinds, and what an operator can do.
const (
	// RelayMissing: events wait, and no process publishes them. Start one.
	RelayMissing Kind = "relay missing"
	// RelayLate: events should have left more than a minute ago, and a relay has their lanes. The broker is in trouble, or the relay does not keep up.
	RelayLate Kind = "relay late"
	// ConsumerMissing: no process runs a consumer, or none at a topic if there is a Topic, and messages are parked or wait at the broker, or nobody knows
	// whether some do. Start one, or say that the consumer is gone (inbox.Inbox.Forget).
	ConsumerMissing Kind = "consumer missing"
	// ConsumerAway: processes run a consumer, and none of them has been connected to the broker for half a minute, or its subscription is gone there.
	// It connects again by itself; mend the broker or the way to it.
	ConsumerAway Kind = "consumer away"
	// ConsumerLate: a consumer is connected, there has been work for more than a minute, and none got done. A handler hangs, or the broker delivers nothing.
	ConsumerLate Kind = "consumer late"
	// ConsumerPaused: the program has paused a consumer for longer than [LongPause] (inbox.Inbox.Pause).
	ConsumerPaused Kind = "consumer paused"
	// EventDead: an event was given up. Replay or discard it.
	EventDead Kind = "event dead"
	// EventFailing: the broker refuses an event. It is tried again; mend the cause.
	EventFailing Kind = "event failing"
	// MessageDead: a consumer gave a message up. Replay or discard it.
	MessageDead Kind = "message dead"
	// MessageFailing: a handler fails. It is tried again; mend the cause, and have it tried at once (package inbox/parked).
	MessageFailing Kind = "message failing"
	// StepUnknown: it is unknown whether a step of a request was done, and requests with its key are refused. Find out, and say so
	// (idempotency.Store.Resolve).
	StepUnknown Kind = "step unknown"
	// TenantPaused: an operator has paused a tenant for longer than [LongPause]. Resume it (outbox.Store.Tenants().Resume).
	TenantPaused Kind = "tenant paused"
)

// LongPause is how long a tenant may be paused before the pause counts as forgotten.
const LongPause = 24 * time.Hour

// LongTransaction is how long a transaction may be open before that counts as a fault: it keeps VACUUM from removing published events, and
// the outbox becomes slower. See [outboxstate.Stats].
const LongTransaction = 10 * time.Minute

// Action is something that an operator can do: a command of the command line, a button of a page.
type Action string

// The actions.
const (
	StartRelay    Action = "start relay"    // start a process that publishes the events
	StartConsumer Action = "start consumer" // start a process that runs the consumer
	Replay        Action = "replay"         // publish or handle a dead letter after all
	Edit          Action = "edit"           // replay a dead letter with another payload
	Discard       Action = "discard"        // delete a dead letter for good
	RetryNow      Action = "retry"          // have a message tried at once
	GiveUp        Action = "give up"        // make a dead letter of a message
	Resolve       Action = "resolve"        // say what became of a step
	Resume        Action = "resume"         // publish the events of a tenant again
)

// Actions returns what an operator can do about it, the usual action first. Empty: mend the cause, and it goes on by itself.
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

// Filter selects stuck things that match every field that is set. The zero filter selects all. A thing without the property is not
// selected: a request has no topic, and an event in the outbox no consumer. Relays and consumers that do not run or do not get on are parts
// of everything.
type Filter struct {
	Tenant, Topic, Consumer string
}

// Stuck is something that waits too long, or for a decision.
type Stuck struct {
	Kind Kind
	// Since is when it began to wait, by the clock of the database. Zero if that is not known.
	Since time.Time
	// ID is that of the event, or the hash of an idempotency key.
	ID string
	// MessageKey is that of a message, for the calls of package inbox.
	MessageKey string
	// Relay is the process that has the lane of the oldest event that waits, or had it and vanished. "" if that is not known.
	Relay string
	// Consumer is that of a message.
	Consumer string
	// Type, Topic and Tenant are those of the event or message.
	Type, Topic, Tenant string
	// Source is where an event or message came from.
	Source string
	// Key is the ordering key, "" for an event or message without order.
	Key string
	// Holds says that the later events or messages of the key wait behind this one.
	Holds bool
	// Step is the name of a step, Label what it is about, and Request the method and path of the request whose step it is. Caller is who sent that, as
	// the service names him, and Principal the beginning of his hash.
	Step, Label, Request, Caller, Principal string
	// Attempts counts the tries.
	Attempts int
	// Next is when it is tried again. Zero: not before somebody decides.
	Next time.Time
	// Error is the last error, or what is known of a consumer that does not get on. It may be any text.
	Error string
	// Vanished says that the processes of a relay or consumer that is missing have not ended in order: they were killed, are frozen, or do not reach
	// the database.
	Vanished bool
	// Connections is how many consumers the broker has connected for a consumer that is missing.
	Connections int
	// Backlog is how many messages wait for a consumer at the broker, as far as BacklogKnown, or did when that was known last.
	Backlog      int64
	BacklogKnown bool
}

// Stuck lists the stuck things that the filter selects, of each kind at most limit (0: 100), the oldest first. Parts that do not run, or
// make no progress, come before all. Events that wait for their turn, or for their time, are not stuck.
//
// It reads at most [Looked] keys of failing messages and, with a filter, of failing events.
func (v *View) Stuck(ctx context.Context, filter Filter, limit int) ([]Stuck, error) {
	if limit <= 0 {
		limit = 100
	}
	var list []Stuck
	for _, read := range []func(context.Context, Filter, int) ([]Stuck, error){
		v.parts, v.deadEvents, v.failingEvents, v.deadMessages, v.failingMessages, v.unknownSteps, v.longPauses,
	} {
		found, err := read(ctx, filter, limit)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	slices.SortStableFunc(list, func(a, b Stuck) int {
		if before, after := isPart(a.Kind), isPart(b.Kind); before != after {
			if before {
				return -1
			}
			return 1
		}
		return a.Since.Compare(b.Since)
	})
	return list, nil
}

// Causes is [View.Stuck] grouped by causes. The order is that of Stuck, by the oldest of each group.
func (v *View) Causes(ctx context.Context, filter Filter) ([]Cause, error) {
	all, err := v.Stuck(ctx, filter, Looked)
	return Group(all), err
}

func isPart(k Kind) bool {
	switch k {
	case RelayMissing, RelayLate, ConsumerMissing, ConsumerAway, ConsumerLate, ConsumerPaused:
		return true
	default:
		return false
	}
}

// selects checks the fields that the tables have no index for.
func (f Filter) selects(s *Stuck) bool {
	return (f.Tenant == "" || s.Tenant == f.Tenant) && (f.Topic == "" || s.Topic == f.Topic) && (f.Consumer == "" || s.Consumer == f.Consumer)
}

// few returns the first selected things of a list.
func (f Filter) few(list []Stuck, limit int) []Stuck {
	list = slices.DeleteFunc(list, func(s Stuck) bool { return !f.selects(&s) })
	return list[:min(len(list), limit)]
}

// parts finds relays and consumers that do not run, or make no progress.
func (v *View) parts(ctx context.Context, filter Filter, limit int) (list []Stuck, err error) {
	var overdue []outboxstate.Overdue
	if v.outbox != nil {
		if overdue, err = v.outbox.State().Overdue(ctx); err != nil {
			return nil, err
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
	topics = slices.DeleteFunc(topics, func(t Stuck) bool { // what waits at the broker, too, is said already
		return slices.ContainsFunc(consumers, func(c Stuck) bool { return c.Kind == t.Kind && c.Consumer == t.Consumer && c.Topic == t.Topic })
	})
	list = append(append(list, topics...), consumers...)
	byConsumer(list)
	return list[:min(len(list), limit)], err
}

// absentTopics looks for topics that no process handles for a consumer that runs.
func (v *View) absentTopics(ctx context.Context, filter Filter) (list []Stuck, err error) {
	if v.inbox == nil {
		return nil, nil
	}
	topics, err := v.inbox.State().AbsentTopics(ctx)
	for _, a := range topics {
		s := Stuck{Kind: ConsumerMissing, Consumer: a.Consumer, Topic: a.Topic, Since: a.Since}
		if filter.Tenant = ""; filter.selects(&s) {
			list = append(list, s)
		}
	}
	return list, err
}

func (v *View) deadEvents(ctx context.Context, filter Filter, limit int) ([]Stuck, error) {
	if filter.Consumer != "" || v.outbox == nil {
		return nil, nil
	}
	page, err := v.outbox.Dead().List(ctx, operator.DeadFilter{TenantID: filter.Tenant, Topic: filter.Topic}, nil, limit)
	list := make([]Stuck, len(page))
	for n := range page {
		d := &page[n]
		list[n] = ofEvent(EventDead, &d.Row, Stuck{Since: d.DiedAt, Error: d.Error, Holds: d.Holds})
	}
	return list, err
}

func (v *View) failingEvents(ctx context.Context, filter Filter, limit int) ([]Stuck, error) {
	look := limit
	switch {
	case filter.Consumer != "" || v.outbox == nil:
		return nil, nil
	case filter != Filter{}:
		look = max(limit, Looked)
	}
	page, err := v.outbox.State().Failing(ctx, look)
	list := make([]Stuck, len(page))
	for n := range page {
		f := &page[n]
		list[n] = ofEvent(EventFailing, &f.Row, Stuck{Since: f.CreatedAt, Next: f.RetryAfter, Error: f.Error, Holds: f.Key != ""})
	}
	return filter.few(list, limit), err
}

func ofEvent(kind Kind, r *outboxstate.Row, s Stuck) Stuck {
	s.Kind, s.ID, s.Type, s.Topic, s.Tenant, s.Key, s.Attempts = kind, r.ID, r.Type, r.Topic, r.TenantID, r.Key, r.RetryCount+r.Crashes
	return s
}

func (v *View) deadMessages(ctx context.Context, filter Filter, limit int) ([]Stuck, error) {
	if v.inbox == nil {
		return nil, nil
	}
	page, err := v.inbox.Dead().List(ctx, operator.DeadFilter{Consumer: filter.Consumer, TenantID: filter.Tenant, Topic: filter.Topic}, nil, limit)
	list := make([]Stuck, len(page))
	for n := range page {
		d := &page[n]
		list[n] = ofMessage(MessageDead, d.Key, &d.Envelope, Stuck{Since: d.DiedAt, Attempts: d.Attempts, Error: d.Error, Holds: d.Holds})
	}
	return list, err
}

func (v *View) failingMessages(ctx context.Context, filter Filter, limit int) ([]Stuck, error) {
	if v.inbox == nil {
		return nil, nil
	}
	first := parked.Filter{Consumer: filter.Consumer, TenantID: filter.Tenant, Topic: filter.Topic, State: parked.KeyFailed, FirstOnly: true}
	page, err := v.inbox.Parked().List(ctx, first, nil, max(limit, Looked)) // they come in the order of their keys
	list := make([]Stuck, len(page))
	for n := range page {
		p := &page[n]
		list[n] = ofMessage(MessageFailing, p.Key, &p.Envelope, Stuck{
			Since: p.ParkedAt, Attempts: p.Attempts, Next: p.DueAt, Error: p.Error, Holds: p.OrderingKey != "",
		})
	}
	slices.SortStableFunc(list, func(a, b Stuck) int { return a.Since.Compare(b.Since) })
	return filter.few(list, limit), err
}

func ofMessage(kind Kind, ref operator.MessageRef, e *event.Envelope, s Stuck) Stuck {
	s.Kind, s.ID, s.MessageKey, s.Consumer = kind, e.ID, ref.MessageKey, ref.Consumer
	s.Type, s.Topic, s.Tenant, s.Source, s.Key = e.Type, e.Topic, e.TenantID, ref.Source, e.OrderingKey()
	return s
}

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
