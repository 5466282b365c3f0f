package messaging

import (
	"context"

	"github.com/oncebox/oncebox/event"
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

// NewContext returns a context that carries m and what it brings along: its tenant, its correlation and, as causation,
// its id. Whatever a handler emits under this context is thereby tied to the message.
func NewContext(ctx context.Context, m *Message) context.Context {
	ctx = context.WithValue(ctx, messageKey{}, m)
	if m.TenantID != "" {
		ctx = event.WithTenant(ctx, m.TenantID)
	}
	md := event.Metadata{event.CausationID: m.ID}
	if id := m.Metadata[event.CorrelationID]; id != "" {
		md[event.CorrelationID] = id
	} else if m.ID != "" {
		// The first message of a conversation starts it.
		md[event.CorrelationID] = m.ID
	}
	for _, k := range []string{event.TraceParent, event.TraceState} {
		if v := m.Metadata[k]; v != "" {
			md[k] = v
		}
	}
	return event.WithMetadata(ctx, md)
}

// FromContext returns the message that is being handled.
func FromContext(ctx context.Context) (*Message, bool) {
	m, ok := ctx.Value(messageKey{}).(*Message)
	return m, ok
}
