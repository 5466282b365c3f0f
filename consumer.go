package oncebox

import (
	"fmt"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
)

// Consume registers h for the messages of a topic; each is handled once per consumer. The name identifies the subscription and the entries
// of the inbox, so it must never change. Call it before [App.Run], in every process of the service: the processes that only publish make
// sure of the subscription too. Without a broker subscriptions are rows of the database; [inbox.Inbox.Forget] removes those of a consumer
// that is gone for good. An readmodel.Model, of the same name, may be given for h. It panics when an option cannot be used, when called
// twice for one topic and consumer, or after Run.
func (a *App) Consume(topic, name string, h messaging.Handler, opts ...inbox.Option) {
	must(a.validate(topic, name))
	must(a.Inbox.Consume(topic, name, h, a.options(opts)...))
}

// ConsumeBatch is [App.Consume] for a bulk writer: it gets up to 100 messages at once, or as many as [inbox.Batch] says, in one
// unit of work.
func (a *App) ConsumeBatch(topic, name string, fn inbox.BatchFunc, opts ...inbox.Option) {
	must(a.validate(topic, name))
	must(a.Inbox.ConsumeBatch(topic, name, fn, a.options(opts)...))
}

// validate asks the broker for its rule for names.
func (a *App) validate(topic, name string) error {
	broker, ok := a.broker.(messaging.Naming)
	if !ok {
		return nil
	}
	if err := broker.ValidateSubscription(messaging.Subscription{Topic: topic, Name: name}); err != nil {
		return fmt.Errorf("Consume(%q, %q): %w", topic, name, err)
	}
	return nil
}

// options returns the configured options, followed by those of one consumer.
func (a *App) options(opts []inbox.Option) []inbox.Option {
	return append([]inbox.Option{inbox.Receiving(a.cfg.Consumer), inbox.OwnedBy(a.cfg.UoW.Source)}, opts...)
}

// must panics: a consumer that is wired wrongly is a mistake in the program, found at its start.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("oncebox: %v", err))
	}
}

// Pause stops the flow of messages to all consumers of that name in this process, until [App.Resume]: see [inbox.Inbox.Pause].
func (a *App) Pause(consumer string) error { return a.Inbox.Pause(consumer) }

// Resume starts the flow again.
func (a *App) Resume(consumer string) error { return a.Inbox.Resume(consumer) }
