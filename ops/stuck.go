package ops

import (
	"context"
	"slices"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/outbox"
)

// Kind says what is stuck.
type Kind string

// The kinds, and what an operator can do.
const (
	// RelayMissing: events wait, and no process publishes them. Start one.
	RelayMissing Kind = "relay missing"
	// ConsumerMissing: messages are parked, and no process runs their consumer. Start one, or say that it is gone (inbox.Inbox.Forget).
	ConsumerMissing Kind = "consumer missing"
	// EventDead: an event was given up. Replay or discard it.
	EventDead Kind = "event dead"
	// EventFailing: the broker refuses an event. It is tried again; mend the cause.
	EventFailing Kind = "event failing"
	// MessageDead: a consumer gave a message up. Replay or discard it.
	MessageDead Kind = "message dead"
	// MessageFailing: a handler fails. It is tried again; mend the cause, and have it tried at once (inbox.Inbox.RetryNow).
	MessageFailing Kind = "message failing"
	// StepUnknown: it is unknown whether a step of a request was done, and requests with its key are refused. Find out, and say so
	// (idempotency.Store.Resolve).
	StepUnknown Kind = "step unknown"
)

// Stuck is something that waits for longer than its turn, or for a decision.
type Stuck struct {
	Kind Kind
	// Since is when it began to wait, by the clock of the database. Zero if that is not known.
	Since time.Time
	// ID is that of the event, or the hash of an idempotency key.
	ID string
	// MessageKey is that of a message, for the calls of package inbox.
	MessageKey string
	// Consumer is that of a message.
	Consumer string
	// Type, Topic and Tenant are those of the event or message.
	Type, Topic, Tenant string
	// Key is the ordering key, "" for an event or message without order.
	Key string
	// Holds says that the later events or messages of the key wait behind this one.
	Holds bool
	// Step is the name of a step.
	Step string
	// Attempts counts the tries.
	Attempts int
	// Next is when it is tried again. Zero: not before somebody decides.
	Next time.Time
	// Error is the last error. It may be any text.
	Error string
}

// Stuck lists what is stuck, of each kind at most limit (0: 100), the oldest first. Parts that are missing come before all.
// What waits for its turn, or for its time, is not stuck.
func (v *View) Stuck(ctx context.Context, limit int) ([]Stuck, error) {
	if limit <= 0 {
		limit = 100
	}
	var list []Stuck
	for _, read := range []func(context.Context, int) ([]Stuck, error){
		v.missing, v.deadEvents, v.failingEvents, v.deadMessages, v.failingMessages, v.unknownSteps,
	} {
		found, err := read(ctx, limit)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	slices.SortStableFunc(list, func(a, b Stuck) int {
		if before, after := isMissing(a.Kind), isMissing(b.Kind); before != after {
			if before {
				return -1
			}
			return 1
		}
		return a.Since.Compare(b.Since)
	})
	return list, nil
}

func isMissing(k Kind) bool { return k == RelayMissing || k == ConsumerMissing }

// missing looks for what does not run.
func (v *View) missing(ctx context.Context, _ int) (list []Stuck, err error) {
	since, err := v.outbox.Unrelayed(ctx)
	if err != nil {
		return nil, err
	}
	if !since.IsZero() {
		list = append(list, Stuck{Kind: RelayMissing, Since: since})
	}
	absent, err := v.inbox.Absent(ctx)
	for consumer, seen := range absent {
		list = append(list, Stuck{Kind: ConsumerMissing, Consumer: consumer, Since: seen})
	}
	return list, err
}

func (v *View) deadEvents(ctx context.Context, limit int) ([]Stuck, error) {
	page, err := v.outbox.Dead(ctx, outbox.DeadFilter{}, nil, limit)
	list := make([]Stuck, len(page))
	for n := range page {
		d := &page[n]
		list[n] = ofEvent(EventDead, &d.Row, d.DiedAt, time.Time{}, d.Error)
	}
	return list, err
}

func (v *View) failingEvents(ctx context.Context, limit int) ([]Stuck, error) {
	page, err := v.outbox.Failing(ctx, limit)
	list := make([]Stuck, len(page))
	for n := range page {
		f := &page[n]
		list[n] = ofEvent(EventFailing, &f.Row, f.CreatedAt, f.RetryAfter, f.Error)
	}
	return list, err
}

func ofEvent(kind Kind, r *outbox.Row, since, next time.Time, text string) Stuck {
	return Stuck{
		Kind: kind, Since: since, ID: r.ID, Type: r.Type, Topic: r.Topic, Tenant: r.TenantID, Key: r.Key,
		Attempts: r.RetryCount + r.Crashes, Next: next, Error: text, Holds: r.Key != "",
	}
}

func (v *View) deadMessages(ctx context.Context, limit int) ([]Stuck, error) {
	page, err := v.inbox.Dead(ctx, inbox.DeadFilter{}, nil, limit)
	list := make([]Stuck, len(page))
	for n := range page {
		d := &page[n]
		list[n] = ofMessage(MessageDead, d.Key, &d.Envelope, Stuck{Since: d.DiedAt, Attempts: d.Attempts, Error: d.Error, Holds: d.Holds})
	}
	return list, err
}

func (v *View) failingMessages(ctx context.Context, limit int) ([]Stuck, error) {
	page, err := v.inbox.Parked(ctx, inbox.ParkedFilter{State: inbox.KeyFailed, FirstOnly: true}, nil, limit)
	list := make([]Stuck, len(page))
	for n := range page {
		p := &page[n]
		list[n] = ofMessage(MessageFailing, p.Key, &p.Envelope, Stuck{
			Since: p.ParkedAt, Attempts: p.Attempts, Next: p.DueAt, Error: p.Error, Holds: p.OrderingKey != "",
		})
	}
	return list, err
}

func ofMessage(kind Kind, ref inbox.MessageRef, e *event.Envelope, s Stuck) Stuck {
	s.Kind, s.ID, s.MessageKey, s.Consumer = kind, e.ID, ref.MessageKey, ref.Consumer
	s.Type, s.Topic, s.Tenant, s.Key = e.Type, e.Topic, e.TenantID, e.OrderingKey()
	return s
}

func (v *View) unknownSteps(ctx context.Context, limit int) ([]Stuck, error) {
	page, err := v.keys.Unknown(ctx, v.db, "", limit)
	list := make([]Stuck, len(page))
	for n, u := range page {
		list[n] = Stuck{Kind: StepUnknown, Since: u.BegunAt, ID: u.Key, Tenant: u.Tenant, Step: u.Step, Attempts: u.Epoch}
	}
	return list, err
}
