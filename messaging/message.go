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
	// Attempt counts the deliveries of the message as far as the broker knows, from 1. Brokers forget it; nothing that
	// matters is decided by it.
	Attempt int

	receipt any
	// Whose queue it is in, and behind which key.
	consumer *Consumer
	lineup   string
}

// NewMessage is for broker adapters. The receipt is what the adapter needs to acknowledge the message.
func NewMessage(env event.Envelope, attempt int, receipt any) *Message {
	return &Message{Envelope: env, Attempt: attempt, receipt: receipt}
}

// Receipt returns what the adapter put into [NewMessage].
func (m *Message) Receipt() any { return m.receipt }

type messageKey struct{}

// NewContext returns a context that carries m and what it brings along: its tenant, its correlation, as causation its id, and
// [event.DeadLetterOf]. Whatever a handler emits under this context is thereby tied to the message. Invalid identifiers and invalid trace
// contexts (W3C Trace Context) are left out, because no event could be stored with them.
func NewContext(ctx context.Context, m *Message) context.Context {
	ctx, _ = newContext(ctx, m, otelx.Extract(m.Metadata))
	return ctx
}

// WithMessage returns a context that carries m in the place of another form of the same message. All else of ctx stays as it is; only a tenant that
// it lacks is m's.
func WithMessage(ctx context.Context, m *Message) context.Context {
	ctx = context.WithValue(ctx, messageKey{}, m)
	if event.TenantFrom(ctx) == "" && m.TenantID != "" {
		ctx = event.WithTenant(ctx, m.TenantID)
	}
	return ctx
}

// newContext is NewContext for a message whose trace context has been read. It also returns the keys that were left out.
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
		// The first message of a conversation starts it.
		md[event.CorrelationID] = id
	}
	if id := m.Metadata[event.DeadLetterOf]; id != "" {
		md[event.DeadLetterOf] = valid(event.DeadLetterOf, id)
	}
	if parent := m.Metadata[event.TraceParent]; parent != "" {
		if !sender.IsValid() || event.ValidateIdentifier(event.TraceParent, parent) != nil { // the tail of a later version may be anything
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

// UnreadableKey is the key of the metadata under which an adapter says why a message is not what was sent: it is encrypted, too
// large, or a part of it is missing. [Router] and package inbox call no handler for such a message; inbox makes a dead letter of
// it, which stays one when it is replayed. Other handlers ask [Unreadable].
const UnreadableKey = "oncebox-unreadable"

// ErrUnreadable is matched by what [Unreadable] returns.
var ErrUnreadable = errors.New("messaging: the message cannot be read")

// Unreadable returns a permanent error if m is not what was sent, and nil otherwise.
func Unreadable(m *Message) error {
	reason, unreadable := m.Metadata[UnreadableKey]
	if !unreadable {
		return nil
	}
	return Permanent(fmt.Errorf("%w: %.500s", ErrUnreadable, reason))
}
