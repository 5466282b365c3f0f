package oncebox

import (
	"fmt"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
)

// Consume registers h for the messages of a topic. uow.Config.TopicPrefix is put before the topic, unless it begins with "/": "/billing.invoice" is
// the topic billing.invoice of a service without this prefix. The consumer called name handles each message once. The name
// identifies the subscription and the consumer's rows in the inbox, so it must never change. Call Consume before
// [App.Run], in every process of the service: processes that only publish also make sure that the subscription exists.
// Without a broker, subscriptions are rows of the database; [consumers.Consumers.Forget] (package inbox/consumers) removes those of a consumer that is
// gone for good. h may be a readmodel.Model with the same name. Consume panics if an option cannot be used, after a
// second call for the same topic and consumer, and after Run.
func (a *App) Consume(topic, name string, h messaging.Handler, opts ...inbox.Option) {
	must(a.Inbox.Consume(topic, name, h, a.options(opts)...))
	must(a.validate(topic, name))
}

// ConsumeBatch is [App.Consume] for a handler that writes in bulk. It gets up to 100 messages in one unit of work, or
// as many as [inbox.Batch] sets.
func (a *App) ConsumeBatch(topic, name string, fn inbox.BatchFunc, opts ...inbox.Option) {
	must(a.Inbox.ConsumeBatch(topic, name, fn, a.options(opts)...))
	must(a.validate(topic, name))
}

// validate checks the subscription of a new consumer by the broker's rules, if it has any.
func (a *App) validate(topic, name string) error {
	broker, ok := a.broker.(messaging.Naming)
	if !ok {
		return nil
	}
	topic = a.UoW.Topic(topic)
	for _, s := range a.Inbox.Subscriptions() {
		if s.Topic != topic || s.Name != name {
			continue
		}
		if err := broker.ValidateSubscription(s); err != nil {
			return fmt.Errorf("Consume(%q, %q): %w", topic, name, err)
		}
	}
	return nil
}

// options returns the configured options, followed by those of one consumer.
func (a *App) options(opts []inbox.Option) []inbox.Option {
	return append([]inbox.Option{inbox.Receiving(a.cfg.Consumer), inbox.OwnedBy(a.cfg.UoW.Source)}, opts...)
}

// must panics for a consumer that is wired wrongly, so that this mistake is found at the start of the program.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("oncebox: %v", err))
	}
}
