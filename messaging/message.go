package messaging

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/otelx"
)

// Message is an event as it was received.
type Message struct {
	event.Envelope
	// Attempt counts the deliveries of the message, from 1, as far as the broker knows. A broker may forget the number, so decide nothing
	// important by it.
	Attempt int

	receipt any
	// The consumer whose queue the message is in, and the key behind which it waits there, for QueueFull.
	consumer *Consumer
	lineup   string
}

// NewMessage returns a received message; broker adapters call it. receipt is whatever the adapter needs to acknowledge the message.
func NewMessage(env event.Envelope, attempt int, receipt any) *Message {
	return &Message{Envelope: env, Attempt: attempt, receipt: receipt}
}

// Receipt returns the receipt that the adapter gave to [NewMessage].
func (m *Message) Receipt() any { return m.receipt }

type messageKey struct{}

// NewContext returns a context that carries m and the data that events inherit from it: the tenant, the correlation id, the id of m as the causation
// id, and [event.DeadLetterOf]. So events that a handler emits with this context are linked to m. Invalid identifiers and invalid trace contexts (W3C
// Trace Context) are left out, because no event could be stored with them.
func NewContext(ctx context.Context, m *Message) context.Context {
	ctx, _ = newContext(ctx, m, otelx.Extract(m.Metadata))
	return ctx
}

// WithMessage returns ctx with m in place of an earlier form of the same message, for example the opened form of a sealed one. Everything else in ctx
// stays; if it has no tenant, it gets that of m.
func WithMessage(ctx context.Context, m *Message) context.Context {
	ctx = context.WithValue(ctx, messageKey{}, m)
	if event.TenantFrom(ctx) == "" && m.TenantID != "" {
		ctx = event.WithTenant(ctx, m.TenantID)
	}
	return ctx
}

// newContext is NewContext for a message whose trace context was read already. It also returns the metadata keys that were left out as invalid.
func newContext(ctx context.Context, m *Message, sender trace.SpanContext) (_ context.Context, left []string) {
	ctx = context.WithValue(ctx, messageKey{}, m)
	if m.TenantID != "" {
		ctx = event.WithTenant(ctx, m.TenantID)
	}
	valid := func(key, id string) string {
		if event.ValidateIdentifier(key, id) != nil {
			left = append(left, key)
			return ""
		}
		return id
	}
	md := event.Metadata{event.CausationID: valid(event.CausationID, m.ID)}
	if id := valid(event.CorrelationID, m.Metadata[event.CorrelationID]); id != "" {
		md[event.CorrelationID] = id
	} else if id := md[event.CausationID]; id != "" {
		// A message without a correlation id is the first of a conversation, so its own id becomes the correlation id.
		md[event.CorrelationID] = id
	}
	if id := m.Metadata[event.DeadLetterOf]; id != "" {
		md[event.DeadLetterOf] = valid(event.DeadLetterOf, id)
	}
	if parent := m.Metadata[event.TraceParent]; parent != "" {
		if !sender.IsValid() || event.ValidateIdentifier(event.TraceParent, parent) != nil { // a later version of traceparent may have any text at its end
			left = append(left, event.TraceParent)
			return event.WithMetadata(ctx, md), left
		}
		md[event.TraceParent] = parent
		if state := sender.TraceState().String(); state != "" {
			md[event.TraceState] = state
		} else if m.Metadata[event.TraceState] != "" {
			left = append(left, event.TraceState)
		}
	}
	return event.WithMetadata(ctx, md), left
}

// FromContext returns the message that is being handled.
func FromContext(ctx context.Context) (*Message, bool) {
	m, ok := ctx.Value(messageKey{}).(*Message)
	return m, ok
}

// UnreadableKey is the metadata key under which an adapter gives the reason why a message was not received as it was sent: it is encrypted, too
// large, or a part of it is missing. [Router] and package inbox call no handler for such a message. Package inbox makes it a dead letter, and again
// when it is replayed. Other handlers can call [Unreadable].
const UnreadableKey = "oncebox-unreadable"

// ErrUnreadable is wrapped by the errors of [Unreadable].
var ErrUnreadable = errors.New("messaging: the message cannot be read")

// Unreadable returns a permanent error if an adapter has marked m with [UnreadableKey], and nil otherwise.
func Unreadable(m *Message) error {
	reason, unreadable := m.Metadata[UnreadableKey]
	if !unreadable {
		return nil
	}
	return Permanent(fmt.Errorf("%w: %.500s", ErrUnreadable, reason))
}
