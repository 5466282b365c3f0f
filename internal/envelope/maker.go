// Package envelope turns events and payloads into complete, valid envelopes. The unit of work and the outbox share it,
// so that an event looks the same whichever way it was added.
package envelope

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/event"
)

// DefaultMaxPayload is the default limit of a payload in bytes. It leaves room: Brokers accept messages of
// 5 MiB with all headers.
const DefaultMaxPayload = 1 << 20

// Maker makes envelopes with the defaults of the service.
type Maker struct {
	Registry        *event.Registry
	Source          string
	TopicPrefix     string
	DefaultTenantID string
	Topic           func(event.Envelope) string
	MaxPayload      int
	// ValidateTopic checks a topic by the broker's rules for names. nil: the broker has none.
	ValidateTopic func(string) error
	// Tracer makes a span for each created event. nil: no spans.
	Tracer trace.Tracer
}

// Recorded makes the envelope of an event that an aggregate has recorded.
func (m *Maker) Recorded(ctx context.Context, agg event.Aggregate, version int64, r event.Recorded) (event.Envelope, error) {
	env, err := m.encode(r.Event)
	// Set also if the encoding failed, because the error names the aggregate.
	env.AggregateType, env.AggregateID, env.AggregateVersion, env.OccurredAt = agg.AggregateType(), agg.AggregateID(), version, r.At
	if err != nil {
		return env, fmt.Errorf("%s %s: %w", env.AggregateType, env.AggregateID, err)
	}
	return m.complete(ctx, env)
}

// Payload makes the envelope of an event that is added by hand. payload may be an [event.Event], json.RawMessage, []byte, or anything that can be
// encoded as JSON. Bytes are copied: the caller may use its buffer again before the flush.
func (m *Maker) Payload(ctx context.Context, topic string, payload any, opts []event.AddOption) (event.Envelope, error) {
	var env event.Envelope
	var err error
	switch p := payload.(type) {
	case event.Event:
		env, err = m.encode(p)
	case json.RawMessage:
		env.Payload, env.ContentType = bytes.Clone(p), event.ContentTypeJSON
		if !json.Valid(p) {
			err = &event.InvalidError{Field: "Payload", Reason: "is a json.RawMessage, but not valid JSON"}
		}
	case []byte:
		env.Payload, env.ContentType = bytes.Clone(p), "application/octet-stream"
	default:
		env.ContentType = event.ContentTypeJSON
		env.Payload, err = json.Marshal(p)
	}
	if err != nil {
		return env, fmt.Errorf("topic %s: %w", topic, err)
	}
	env.Topic, env.OccurredAt = topic, time.Now()
	for _, opt := range opts {
		opt(&env)
	}
	return m.complete(ctx, env)
}

func (m *Maker) encode(e event.Event) (event.Envelope, error) {
	if m.Registry == nil {
		return event.Envelope{}, &outgoingError{fmt.Errorf("%w: %q: no registry is configured: set uow.Config.Registry to an event.NewRegistry() "+
			"(outbox.Config.Registry for Store.Add), and call event.Register[%s] at start",
			event.ErrUnknownType, e.EventType(), strings.TrimLeft(fmt.Sprintf("%T", e), "*"))}
	}
	env, err := m.Registry.Encode(e)
	if err != nil {
		return env, &outgoingError{err}
	}
	if d, ok := e.(event.Described); ok {
		env.Metadata = d.Metadata()
	}
	return env, nil
}

// errNoSource: an event needs a Source, because readers distinguish services by it.
var errNoSource = errors.New("event: Source is empty: name this service in uow.Config.Source (ONCEBOX_SOURCE), or in outbox.Config.Source for Store.Add")

// complete fills in the empty fields, and returns an error for an event that must not be stored.
func (m *Maker) complete(ctx context.Context, env event.Envelope) (event.Envelope, error) {
	if err := identify(&env); err != nil {
		return env, err
	}
	if env.Source = cmp.Or(env.Source, m.Source); env.Source == "" {
		return env, errNoSource
	}
	if ambiguous(ctx, &env) {
		return env, fmt.Errorf("%s: %w", cmp.Or(env.Type, env.Topic), errSeveral)
	}
	env.TenantID = cmp.Or(env.TenantID, event.TenantFrom(ctx), m.DefaultTenantID)
	if env.SchemaVersion == 0 {
		env.SchemaVersion = 1
	}
	// PostgreSQL keeps microseconds (chapter 8.5). So the event in memory equals the stored event.
	env.OccurredAt = env.OccurredAt.UTC().Truncate(time.Microsecond)

	_, traced := env.Metadata[event.TraceParent] // the event has a trace context of its own, which is kept
	md := event.MetadataFrom(ctx)
	// What the event brings along wins over what the context has.
	maps.Copy(md, env.Metadata)
	env.Metadata = md

	name := cmp.Or(env.Topic, env.AggregateType)
	if env.Topic == "" && m.Topic != nil {
		name = m.Topic(env)
	}
	env.Topic = FullTopic(m.TopicPrefix, name)
	// A payload that is not an event has no type, so it is named after its topic. The prefix is left out: it differs between environments, and
	// consumers compare types.
	env.Type = cmp.Or(env.Type, FullTopic("", name))
	if err := route(&env); err != nil {
		return env, fmt.Errorf("%s: %w", env.Type, err)
	}
	if !traced {
		m.trace(ctx, &env)
	}

	if err := env.Validate(); err != nil {
		return env, fmt.Errorf("%s: %w", env.Type, err)
	}
	if m.ValidateTopic != nil {
		if err := m.ValidateTopic(env.Topic); err != nil {
			return env, fmt.Errorf("%s: topic %q: %w", env.Type, env.Topic, err)
		}
	}
	// Sealing comes before the check of the size, because an encrypted payload is longer and the broker gets that one.
	if m.Registry != nil {
		if err := m.Registry.Seal(ctx, &env); err != nil {
			return env, err
		}
	}
	limit := m.MaxPayload
	if limit == 0 {
		limit = DefaultMaxPayload
	}
	if len(env.Payload) > limit && limit > 0 {
		return env, fmt.Errorf("%s: %w", env.Type, &event.InvalidError{
			Field: "Payload",
			Reason: fmt.Sprintf("has %d bytes, at most %d are allowed (MaxPayload, ONCEBOX_MAX_PAYLOAD): store it elsewhere and send a reference",
				len(env.Payload), limit),
		})
	}
	return env, nil
}

// identify gives an event without an id a new UUIDv7. A given UUID is written in lower case with hyphens, because
// consumers compare ids as texts.
func identify(env *event.Envelope) error {
	if env.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make an id: %w", err)
		}
		env.ID = id.String()
		return nil
	}
	id, err := uuid.Parse(env.ID)
	if err != nil {
		return &event.InvalidError{Field: "ID", Reason: "is not a UUID"}
	}
	env.ID = id.String()
	return nil
}

// route sets the message key. An event with an ordering key has it as its message key, because brokers keep the order of message keys.
//
// A delayed event of an aggregate gets its own id as the ordering key: it is not part of the aggregate's order, neither here nor at consumers. So
// its message key is not restricted, and the caller may choose it.
func route(env *event.Envelope) error {
	key := env.Delivery.OrderingKey
	if key == "" && env.AggregateID != "" && isDelayed(env) {
		env.Delivery.OrderingKey, env.RoutingKey = env.ID, cmp.Or(env.RoutingKey, env.ID)
		return nil
	}
	if env.RoutingKey = cmp.Or(env.RoutingKey, key, env.AggregateID); key == "" || env.RoutingKey == key {
		return nil
	}
	return &event.InvalidError{Field: "RoutingKey", Reason: fmt.Sprintf("is %q beside the ordering key %q: "+
		"the broker keeps the order of its message key, so leave one of them out", env.RoutingKey, key)}
}
