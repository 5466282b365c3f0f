package inbox

import (
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/messaging"
)

// consumer is one call of [Inbox.Consume].
type consumer struct {
	settings

	handler messaging.Handler
	loop    *messaging.Loop // nil before it receives
}

// Consume registers h for the messages of a topic; [Inbox.Run] then calls it, once for each message and consumer. The name identifies the
// subscription and the entries of the inbox, so it must never change. h runs inside a unit, see [Inbox.Wrap], or with [Leased] under a
// lease. h may be a readmodel.Model of the same name, which has its own options for how messages are handled.
//
// Call it before Run. The error names the argument that cannot be used. A topic has at most one consumer of a name.
func (i *Inbox) Consume(topic, name string, h messaging.Handler, opts ...Option) error {
	return i.consume(topic, name, opts, func(s *settings, final Option) (messaging.Handler, error) {
		model, isModel := h.(interface{ Generations() *Generations }) // a readmodel.Model
		switch {
		case h == nil:
			return nil, errors.New("the handler is nil")
		case isModel && (model.Generations().Name() != name || s.handles):
			return nil, fmt.Errorf("read model %q is consumed under its own name, with the options that it has", model.Generations().Name())
		case isModel:
			return model.Generations(), nil
		case s.leased:
			return i.WrapLeased(name, h, final), nil
		default:
			return i.Wrap(name, h, final), nil
		}
	})
}

// defaultBatch is the most messages that a bulk writer gets in one call.
const defaultBatch = 100

// ConsumeBatch is [Inbox.Consume] for a bulk writer: it gets up to 100 messages at once, or as many as [Batch] says, in one
// unit of work.
func (i *Inbox) ConsumeBatch(topic, name string, fn BatchFunc, opts ...Option) error {
	return i.consume(topic, name, append([]Option{Batch(defaultBatch)}, opts...), func(s *settings, final Option) (messaging.Handler, error) {
		switch {
		case fn == nil:
			return nil, errors.New("the handler is nil")
		case s.leased:
			return nil, errors.New("a bulk writer runs in a transaction: it cannot have a lease")
		default:
			return i.WrapBatch(name, fn, final), nil
		}
	})
}

func (i *Inbox) consume(topic, name string, opts []Option, wrap func(*settings, Option) (messaging.Handler, error)) error {
	s := i.settings(opts)
	err := s.complete(topic, name)
	i.mu.Lock()
	if i.receiving {
		err = errors.Join(err, errors.New("Run has begun, so nothing would be received: call it before Run"))
	}
	for _, c := range i.consuming {
		if c.subscription.Topic == topic && c.subscription.Name == name {
			err = errors.Join(err, errors.New("there is such a consumer already"))
		}
	}
	i.mu.Unlock()
	c := &consumer{settings: s}
	if err == nil {
		c.handler, err = wrap(&s, func(all *settings) { *all = s })
	}
	if err != nil {
		return fmt.Errorf("inbox: Consume(%q, %q): %w", topic, name, err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.consuming = append(i.consuming, c)
	return nil
}

// Subscriptions returns the subscriptions of this process's consumers.
func (i *Inbox) Subscriptions() []messaging.Subscription {
	i.mu.Lock()
	defer i.mu.Unlock()
	list := make([]messaging.Subscription, len(i.consuming))
	for n, c := range i.consuming {
		list[n] = c.subscription
	}
	return list
}
