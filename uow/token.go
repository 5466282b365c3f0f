package uow

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/envelope"
)

// Token names the events of a unit, for a client that made a change and wants to read it in a read model. [WithToken] sets it, and
// inbox.Inbox.Await waits until a consumer has handled its events. It is text that fits into a header or a cookie, about 60 bytes per event. "" is
// the token without events: there is nothing to wait for.
//
// Of several events with one ordering key on one topic it names only the last, because consumers handle them in order. It names every event with a
// dedup key. It does not name an event that is delayed ([event.WithDelay], [event.WithNotBefore]), nor what waits behind one in the order of its key.
type Token string

// Announced is an event in a [Token]. Its fields have the meaning of the fields with the same names in [event.Envelope].
type Announced struct{ ID, Source, TenantID, Topic string }

// announced is a group of events with the same source, tenant and topic, as a token holds it.
type announced struct {
	Source string   `json:"s"`
	Tenant string   `json:"t"`
	Topic  string   `json:"o"`
	IDs    []string `json:"i"`
}

var errNoToken = &event.InvalidError{Field: "Token", Reason: "is not a token that a unit of work returned"}

// makeToken returns the token of events that were committed.
func makeToken(events []event.Envelope) Token {
	events = envelope.Undelayed(events)
	type series struct{ key, topic string }
	seen := map[series]bool{}
	var groups []announced
	// Backwards, so that the last event of each key is named: when it was handled, so were the earlier ones.
	for i := range slices.Backward(events) {
		e := &events[i]
		// An event with a dedup key may have the id of an earlier unit's event, which may have been handled long ago. So it does not stand for others.
		if s := (series{e.OrderingKey(), e.Topic}); s.key != "" && e.Delivery.DedupKey == "" {
			if seen[s] {
				continue
			}
			seen[s] = true
		}
		at := slices.IndexFunc(groups, func(g announced) bool {
			return g.Source == e.Source && g.Tenant == e.TenantID && g.Topic == e.Topic
		})
		if at < 0 {
			at, groups = len(groups), append(groups, announced{Source: e.Source, Tenant: e.TenantID, Topic: e.Topic})
		}
		groups[at].IDs = append(groups[at].IDs, e.ID)
	}
	if groups == nil {
		return ""
	}
	text, _ := json.Marshal(groups) //nolint:errchkjson // strings alone: it cannot fail
	return Token(base64.RawURLEncoding.EncodeToString(text))
}

// Events returns the events of the token: those on the given topics, or all if no topic is given. The error wraps [event.ErrInvalid] if the text is
// not a token: it may have come from a client.
func (t Token) Events(topics ...string) ([]Announced, error) {
	if t == "" {
		return nil, nil
	}
	var groups []announced
	text, err := base64.RawURLEncoding.DecodeString(string(t))
	if err == nil {
		err = json.Unmarshal(text, &groups)
	}
	if err != nil {
		return nil, errNoToken
	}
	var events []Announced
	for _, g := range groups {
		if !identifiers(g.IDs) || !identifiers([]string{g.Source, g.Tenant, g.Topic}) {
			return nil, errNoToken
		}
		if len(topics) > 0 && !slices.Contains(topics, g.Topic) {
			continue
		}
		for _, id := range g.IDs {
			events = append(events, Announced{ID: id, Source: g.Source, TenantID: g.Tenant, Topic: g.Topic})
		}
	}
	return events, nil
}

// identifiers reports whether PostgreSQL accepts the names: a client may have made them up.
func identifiers(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return name == "" || event.ValidateIdentifier("Token", name) != nil })
}

// errFlushed is the error for an event after Unit.Token.
var errFlushed = errors.New("the unit has already returned its Token, so it cannot add events: record all events before Token is called")

// flushed holds the events that the sinks got before the end of the unit.
type flushed struct {
	events     []event.Envelope
	aggregates []event.Aggregate
	recorded   []int // by each of them
}

// Token passes the events of the unit to the sinks now, and returns their token, for an answer that is stored in the unit itself. If the unit is
// not committed, the events of the token will never exist. Call Token last, and in the outermost unit: afterwards [Unit.Track] panics, [Unit.Add]
// fails, and an aggregate that records more fails the unit. It costs a round trip, because only the sinks know the ids of events that repeat
// earlier ones. If the token is not stored in the unit, [WithToken] is cheaper.
func (u *Unit) Token(ctx context.Context) (Token, error) {
	r := u.root
	if r.flushed == nil {
		if err := u.flushEarly(ctx); err != nil {
			return "", err
		}
	}
	return makeToken(r.flushed.events), nil
}

// flushEarly passes the events to the sinks before the end. It is refused within a savepoint, which could
// still be undone.
func (u *level) flushEarly(ctx context.Context) error {
	r := u.root
	if err := u.handle(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	outermost, entries := u.parent == nil && r.active == u && !u.ended, u.entries
	r.mu.Unlock()
	if !outermost {
		return errors.New("uow: Token: the unit has ended, is inside another unit, or contains a unit that has not ended: call Token on the outermost " +
			"unit, as its last step")
	}
	f := &flushed{}
	var err error
	if f.events, f.aggregates, err = r.collect(entries); err != nil {
		return err
	}
	for _, a := range f.aggregates {
		f.recorded = append(f.recorded, len(a.RecordedEvents()))
	}
	if len(f.events) > 0 {
		now := &flush{tx: &r.tx, sinks: r.manager.sinks}
		if err := now.give(ctx, f.events); err != nil {
			return err
		}
		if err := now.settle(ctx); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flushed = f
	return nil
}

// unchanged returns an error if an aggregate has recorded events since, which the sinks would never get.
func (f *flushed) unchanged() error {
	for i, a := range f.aggregates {
		if len(a.RecordedEvents()) != f.recorded[i] {
			return fmt.Errorf("uow: %s %s recorded events later: %w", a.AggregateType(), a.AggregateID(), errFlushed)
		}
	}
	return nil
}
