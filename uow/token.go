package uow

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/oncebox/oncebox/event"
)

// Token names the events that a unit announced, for a client that made a change and wants to read it where events make it
// appear: [WithToken] fills it, inbox.Inbox.Await waits until a consumer has handled what it names. It is text that fits into
// a header or a cookie, about 60 bytes per event. "" names nothing: there is nothing to wait for.
//
// Of the events with one ordering key on one topic it names the last, because consumers handle them in order, and those with
// a dedup key.
type Token string

// Announced is one event that a [Token] names. Its fields are those of the same names of [event.Envelope].
type Announced struct{ ID, Source, TenantID, Topic string }

// announced is a group of them, as a token holds it.
type announced struct {
	Source string   `json:"s"`
	Tenant string   `json:"t"`
	Topic  string   `json:"o"`
	IDs    []string `json:"i"`
}

var errNoToken = &event.InvalidError{Field: "Token", Reason: "is none that a unit of work returned"}

// makeToken returns the token of events that were committed.
func makeToken(events []event.Envelope) Token {
	type series struct{ key, topic string }
	seen := map[series]bool{}
	var groups []announced
	for i := range slices.Backward(events) {
		e := &events[i]
		// What repeats an earlier unit's event has the id of that one, which may have been handled long ago: it stands for nobody.
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

// Events returns what the token names, of the given topics or, without any, of all. The error wraps [event.ErrInvalid] if
// the text is no token: it may have come from a client.
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

// identifiers tells whether they are such as PostgreSQL takes: a client may have made them up.
func identifiers(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return name == "" || event.ValidateIdentifier("Token", name) != nil })
}

// errFlushed is why a unit takes no more events.
var errFlushed = errors.New("the unit has given its Token: announce what happened before that")

// flushed is what the sinks have been given before the end of the unit.
type flushed struct {
	events     []event.Envelope
	aggregates []event.Aggregate
	recorded   []int // by each of them
}

// Token gives the sinks what the unit has announced, and returns the token of it, for an answer that is stored in the unit itself. Of a
// unit that is not committed the token names nothing that will ever be handled. Call it last, and in the outermost unit: afterwards
// [Unit.Track] panics, [Unit.Add] fails, and an aggregate that records more fails the unit. It costs a round trip, because only the
// sinks know the ids of events that repeat earlier ones. Where nothing is stored, [WithToken] is cheaper.
func (u *Unit) Token(ctx context.Context) (Token, error) {
	r := u.root
	if r.flushed == nil {
		if err := r.flushEarly(ctx, u.level); err != nil {
			return "", err
		}
	}
	return makeToken(r.flushed.events), nil
}

func (r *root) flushEarly(ctx context.Context, u *level) error {
	if err := r.handle(ctx, u); err != nil {
		return err
	}
	r.mu.Lock()
	outermost, entries := u.parent == nil && r.active == u && !u.ended, u.entries
	r.mu.Unlock()
	if !outermost {
		return errors.New("uow: Token: the unit has ended, is within another one, or one within it has not ended: ask the outermost unit last")
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
		now := &flush{root: r}
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

// unchanged fails if an aggregate has recorded events that nobody would announce.
func (f *flushed) unchanged() error {
	for i, a := range f.aggregates {
		if len(a.RecordedEvents()) != f.recorded[i] {
			return fmt.Errorf("uow: %s %s recorded events later: %w", a.AggregateType(), a.AggregateID(), errFlushed)
		}
	}
	return nil
}
