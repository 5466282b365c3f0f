package messaging

import (
	"context"
	"log/slog"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/oncebox/oncebox/internal/otelx"
)

// maxSkipped bounds what is remembered of the log: types are what senders say.
const maxSkipped = 1000

// skipped counts the messages that a router has no handler for, and logs the first one of each type.
type skipped struct {
	counter metric.Int64Counter

	mu    sync.Mutex
	types map[string]struct{}
}

func newSkipped() *skipped {
	counter := otelx.Counter(otelx.Meter(nil, "messaging"), "oncebox.router.skipped", "Messages that were settled because their type has no handler")
	return &skipped{counter: counter, types: map[string]struct{}{}}
}

func (s *skipped) note(ctx context.Context, m *Message) {
	s.counter.Add(ctx, 1, metric.WithAttributes(attribute.String("topic", m.Topic)))
	s.mu.Lock()
	_, noted := s.types[m.Type]
	if !noted && len(s.types) < maxSkipped {
		s.types[m.Type] = struct{}{}
	}
	s.mu.Unlock()
	if !noted {
		slog.WarnContext(ctx, "oncebox: messages of this type are settled unread, because it has no handler here: register one, name the type "+
			"in Router.Ignore, or call Router.Strict to have them wait", "consumer", m.handledBy(), "topic", m.Topic, "type", m.Type, "id", m.ID)
	}
}
