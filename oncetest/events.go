package oncetest

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/oncebox/oncebox/event"
)

// recorded is a committed event, published or not.
type recorded struct {
	env    event.Envelope
	status string
}

func (r recorded) String() string {
	return fmt.Sprintf("%s %s (topic %s, %s): %s", r.env.Type, r.env.ID, r.env.Topic, r.status, r.env.Payload)
}

const listRecorded = `
SELECT id::text, event_type, tenant_id, topic, aggregate_type, aggregate_id, schema_version, payload, event_metadata, status
FROM outbox_messages ORDER BY sequence`

func (k *Kit) recorded(ctx context.Context) ([]recorded, error) {
	var rows []struct {
		ID, EventType, TenantID, Topic, AggregateType, AggregateID, Status string
		SchemaVersion                                                      int
		Payload                                                            []byte
		EventMetadata                                                      event.Metadata
	}
	if err := k.DB.NewRaw(listRecorded).Scan(ctx, &rows); err != nil {
		return nil, fmt.Errorf("list the recorded events: %w", err)
	}
	all := make([]recorded, len(rows))
	for i, r := range rows {
		all[i] = recorded{event.Envelope{
			ID: r.ID, Type: r.EventType, TenantID: r.TenantID, Topic: r.Topic, AggregateType: r.AggregateType, AggregateID: r.AggregateID,
			SchemaVersion: r.SchemaVersion, Payload: r.Payload, Metadata: r.EventMetadata,
		}, r.Status}
	}
	return all, nil
}

// RequireEvent returns the first committed event of type T, published or not, that all accept functions accept. It
// fails the test if there is none, with a list of all committed events. A service that deletes published events
// (outbox.NoRetention) keeps them in a test.
func RequireEvent[T event.Event](k *Kit, accept ...func(T) bool) T {
	k.t.Helper()
	found, all := find(k, accept)
	if len(found) == 0 {
		k.t.Fatalf("oncetest: RequireEvent[%s]: there is none%s; %d events were recorded:%s", reflect.TypeFor[T](), accepted(accept), len(all), list(all))
	}
	return found[0].event
}

// RequireEvents is [RequireEvent] for an exact number of events. It returns them in the order in which they were recorded.
func RequireEvents[T event.Event](k *Kit, n int, accept ...func(T) bool) []T {
	k.t.Helper()
	found, all := find(k, accept)
	if len(found) != n {
		k.t.Fatalf("oncetest: RequireEvents[%s]: there are %d%s, not %d; %d events were recorded:%s",
			reflect.TypeFor[T](), len(found), accepted(accept), n, len(all), list(all))
	}
	events := make([]T, n)
	for i, f := range found {
		events[i] = f.event
	}
	return events
}

// RequireNoEvent fails the test if there is a committed event of type T, published or not, that all accept
// functions accept.
func RequireNoEvent[T event.Event](k *Kit, accept ...func(T) bool) {
	k.t.Helper()
	if found, _ := find(k, accept); len(found) > 0 {
		k.t.Fatalf("oncetest: RequireNoEvent[%s]: there are %d%s:%s", reflect.TypeFor[T](), len(found), accepted(accept), list(found))
	}
}

func accepted[T any](accept []func(T) bool) string {
	if len(accept) == 0 {
		return ""
	}
	return " that the function accepts"
}

// typed is a recorded event as its Go type.
type typed[T any] struct {
	recorded

	event T
}

// find returns the events of a type that all functions accept, and a list of all events.
func find[T event.Event](k *Kit, accept []func(T) bool) (found []typed[T], all []recorded) {
	k.t.Helper()
	all, err := k.recorded(k.t.Context())
	if err != nil {
		k.t.Fatalf("oncetest: %v", err)
	}
	types := k.App.Registry.Types()
	i := slices.IndexFunc(types, func(t event.Type) bool { return t.Go == reflect.TypeFor[T]() })
	if i < 0 {
		k.t.Fatalf("oncetest: %s is not registered: call event.Register[%[1]s](app.Registry) where the service is built", reflect.TypeFor[T]())
	}
	for _, r := range all {
		if name, _ := k.App.Registry.Name(r.env.Type); name != types[i].Name {
			continue
		}
		env, err := k.App.Registry.Open(k.t.Context(), &r.env)
		if err != nil {
			k.t.Fatalf("oncetest: open event %s: %v", r, err)
		}
		decoded, err := k.App.Registry.Decode(env)
		if err != nil {
			k.t.Fatalf("oncetest: decode event %s: %v", r, err)
		}
		e, ok := decoded.(T)
		if ok && !slices.ContainsFunc(accept, func(fn func(T) bool) bool { return !fn(e) }) {
			found = append(found, typed[T]{r, e})
		}
	}
	return found, all
}
