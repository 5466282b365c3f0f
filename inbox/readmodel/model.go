package readmodel

import (
	"context"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
)

// Model is a read model that a handler builds from messages, each handled once. It is the [messaging.BatchHandler] that its consumer runs.
type Model struct {
	box         *inbox.Inbox
	generations *inbox.Generations
}

// New returns the read model with this name. The name must never change, like the name of a consumer, and no consumer may have the same. A
// plain consumer that becomes a read model keeps what it has handled. next writes the read model, in the unit of the context: it handles
// live messages, replayed ones, and, in [inbox.Inbox.RunParked], parked ones.
//
// It panics if the name is empty or not an identifier, or looks like that of a generation.
func New(box *inbox.Inbox, name string, next messaging.Handler, opts ...inbox.Option) *Model {
	return &Model{box: box, generations: box.Generations(name, next, opts...)}
}

// Name returns the name of the read model.
func (m *Model) Name() string { return m.generations.Name() }

// Generations is for package inbox.
func (m *Model) Generations() *inbox.Generations { return m.generations }

// Handle handles a live message. While the read model is being rebuilt, it stores the message until the rebuild has ended.
func (m *Model) Handle(ctx context.Context, msg *messaging.Message) error {
	return m.generations.Handle(ctx, msg)
}

// HandleBatch is Handle for several messages.
func (m *Model) HandleBatch(ctx context.Context, msgs []*messaging.Message) error {
	return m.generations.HandleBatch(ctx, msgs)
}
