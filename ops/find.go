package ops

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/internal/seek"
)

// Found is an event or message that a search has found.
type Found struct {
	// ID is the id of the event or message, and Source the service that has recorded it. [View.Life] takes both.
	ID, Source string
	// Type, Topic, Tenant and the aggregate describe it. Only ID, Tenant and Source are known of a message that was handled.
	Type, Topic, Tenant        string
	AggregateType, AggregateID string
	// Key is its ordering key, "" for an event or message without order.
	Key string
	// At is when it was recorded, or, if the outbox of another service has recorded it, when it came to the first consumer that is known.
	At time.Time
	// Where says where it is: a status of the outbox, or a place of the inbox, for example "SENT" or "dead".
	Where string
	// By is the property that fits: "id", "aggregate id", "ordering key", "correlation id", "causation id" or "tenant".
	By string
}

// Findings is the result of a search.
type Findings struct {
	// List has what was found, the newest first.
	List []Found
	// More is true if there may be more than the limit.
	More bool
	// Back is how far the search for published events has come; it is not finished. Zero: all that are kept were searched.
	Back time.Time
}

// searchWithin is how long [View.Find] searches for published events at most. Then [Findings.Back] says how far it has come.
const searchWithin = 5 * time.Second

func ofLives(lives []Life) (f Findings) {
	for n := range lives {
		l := &lives[n]
		found := Found{
			ID: l.ID, Source: l.Source, Type: l.Type, Topic: l.Topic, Tenant: l.Tenant, AggregateType: l.AggregateType, AggregateID: l.AggregateID,
			Key: l.Key, By: string(seek.ByID),
		}
		if len(l.History) > 0 {
			found.At = l.History[0].At
		}
		f.List = append(f.List, found)
	}
	return f
}

// find searches both boxes. Messages of events that this outbox has recorded are left out: the event stands for them.
func find(ctx context.Context, v *View, text string, before time.Time, limit int) (f Findings, err error) {
	known := map[LetterRef]bool{}
	add := func(found *Found) {
		ref := LetterRef{ID: found.ID, Tenant: found.Tenant, Source: found.Source}
		if !known[ref] {
			known[ref] = true
			f.List = append(f.List, *found)
		}
	}
	if v.outbox != nil {
		events, err := v.outbox.State().Search(ctx, text, before, searchWithin, limit)
		if err != nil {
			return f, err
		}
		f.More, f.Back = events.More, events.Back
		for n := range events.List {
			e := &events.List[n]
			add(&Found{
				ID: e.ID, Source: e.Source, Type: e.Type, Topic: e.Topic, Tenant: e.Tenant, AggregateType: e.AggregateType, AggregateID: e.AggregateID,
				Key: e.Key, At: e.CreatedAt, Where: e.Status, By: e.By,
			})
		}
	}
	if v.inbox != nil && before.IsZero() {
		messages, more, err := v.inbox.State().Search(ctx, text, limit)
		if err != nil {
			return f, err
		}
		f.More = f.More || more
		for n := range messages {
			add(ofMatch(&messages[n]))
		}
	}
	slices.SortStableFunc(f.List, func(a, b Found) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.ID, b.ID)) })
	if len(f.List) > limit {
		f.List, f.More = f.List[:limit], true
	}
	return f, nil
}

func ofMatch(m *state.Match) *Found {
	e := &m.Envelope
	found := &Found{
		ID: m.Key.MessageKey, Source: m.Key.Source, Tenant: m.Key.TenantID, Type: e.Type, Topic: e.Topic, AggregateType: e.AggregateType,
		AggregateID: e.AggregateID, At: m.At, Where: string(m.Place), By: m.By,
	}
	if e.ID != "" {
		found.ID, found.Key = e.ID, e.OrderingKey()
	}
	return found
}
