package messaging

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// maxSkipped bounds what is remembered of the log: types are what senders say.
const maxSkipped = 1000

// skipped counts the messages that a router has no handler for, and logs the first one of each type, where the consumer's telemetry goes.
type skipped struct {
	mu    sync.Mutex
	types map[string]struct{}
}

func (s *skipped) note(ctx context.Context, t *telemetry, m *Message) {
	t.skipped.Add(ctx, 1, metric.WithAttributes(attribute.String("topic", m.Topic)))
	s.mu.Lock()
	_, noted := s.types[m.Type]
	if !noted && len(s.types) < maxSkipped {
		s.types[m.Type] = struct{}{}
	}
	s.mu.Unlock()
	if !noted {
		t.log.WarnContext(ctx, "oncebox: messages of this type are settled unread, because it has no handler here: register one, name the type "+
			"in Router.Ignore, or call Router.Strict to have them wait", "consumer", m.handledBy(), "topic", m.Topic, "type", m.Type, "id", m.ID)
	}
}
