package messagingtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/count"
)

func brokenSubscriptions() map[string][]broken {
	return map[string][]broken{
		"bad subscription": {
			{name: "takes what it is given", says: "is accepted", fault: fault{
				subscribe: func(ctx context.Context, a *adapter, s messaging.Subscription) (messaging.Receiver, error) {
					r, err := a.join(ctx, s)
					if err != nil {
						return a.join(ctx, messaging.Subscription{Topic: "default", Name: "default"})
					}
					return r, nil
				},
			}},
		},
		"type that is not there": {
			{name: "takes another type", says: "is not in Harness.Types", fault: fault{
				types: []messaging.SubscriptionType{messaging.Failover},
				subscribe: func(ctx context.Context, a *adapter, s messaging.Subscription) (messaging.Receiver, error) {
					s.Type = messaging.Failover
					return a.join(ctx, s)
				},
			}},
			{name: "refuses for now", says: "another try cannot mend it", fault: fault{
				types: []messaging.SubscriptionType{messaging.Failover},
				subscribe: func(ctx context.Context, a *adapter, s messaging.Subscription) (messaging.Receiver, error) {
					if s.Type != messaging.Failover {
						return nil, messaging.ErrNoSuchType
					}
					return a.join(ctx, s)
				},
			}},
		},
		"topics of any name": {
			{name: "takes upper case for lower case", says: "receive from topic", fault: renames(strings.ToLower)},
			{name: "drops what the broker does not take", says: "Not equal", fault: renames(func(name string) string {
				return strings.Map(func(c rune) rune {
					if c > '~' || strings.ContainsRune(" *>#", c) {
						return -1
					}
					return c
				}, name)
			})},
			{name: "does not turn the name back", says: "Not equal", fault: renames(func(name string) string { return strings.ReplaceAll(name, " ", "+") })},
			{name: "takes messages that nobody can receive", says: "nobody can subscribe", fault: fault{subscribe: refusesTwins().subscribe}},
			{name: "refuses almost all", says: "most names are refused", fault: refuses(func(topic string) bool { return strings.Contains(topic, "a") })},
			{name: "refuses a name for now", says: "publish to topic", fault: fault{
				publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
					if strings.Contains(msgs[0].Topic, "*") {
						return errors.New("the broker does not like the name")
					}
					return a.pass(ctx, msgs)
				},
			}},
		},
		"message for nobody": {
			{name: "confirms what it throws away", says: "is confirmed", fault: fault{
				forgets: true,
				publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
					if !a.hasSubscription(msgs[0].Topic) {
						return nil
					}
					return a.pass(ctx, msgs)
				},
			}},
			{name: "blames the message", says: "is no messaging.TopicError", fault: fault{
				forgets: true,
				publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
					if !a.hasSubscription(msgs[0].Topic) {
						return messaging.Permanent(errors.New("nobody gets it"))
					}
					return a.pass(ctx, msgs)
				},
			}},
		},
		"declared ahead": {
			{name: "fails for what exists", says: "declare what exists", fault: fault{
				declare: func(ctx context.Context, a *adapter, subscriptions []messaging.Subscription) error {
					if len(a.memory.Messages(subscriptions[0].Topic)) > 0 {
						return errors.New("it exists")
					}
					return a.memory.Declare(ctx, nil, subscriptions)
				},
			}},
			{name: "takes what it is given", says: "is declared", fault: fault{
				declare: func(context.Context, *adapter, []messaging.Subscription) error { return nil },
			}},
		},
		"topic in use": {
			{name: "takes every topic for used", says: "in use before its first message", fault: fault{
				unused: func(context.Context, *adapter, string) (bool, error) { return false, nil },
			}},
			{name: "takes a subscription for use", says: "in use before its first message, and has a subscription", fault: fault{
				unused: func(_ context.Context, a *adapter, _ string) (bool, error) { return len(a.all()) == 0, nil },
			}},
			{name: "takes every topic for unused", says: "unused after its first message", fault: fault{
				unused: func(context.Context, *adapter, string) (bool, error) { return true, nil },
			}},
			{name: "knows only what waits", says: "unused after its only message is settled", fault: fault{
				unused: func(ctx context.Context, a *adapter, topic string) (bool, error) {
					state, err := a.memory.ReadSubscription(ctx, topic, "billing")
					return state.Messages == 0, err
				},
			}},
			{name: "has no answer", says: "read the use of the topic", fault: fault{
				unused: func(context.Context, *adapter, string) (bool, error) { return false, errors.ErrUnsupported },
			}},
		},
		"messages that wait": {
			{name: "counts batches", says: "24 messages wait, and the adapter says 12", fault: fault{
				read: func(s *messaging.SubscriptionState) { s.Messages /= 2 },
			}},
			{name: "estimates badly", says: "24 messages wait, and the adapter says about 6", fault: fault{
				read: func(s *messaging.SubscriptionState) { s.Messages, s.Precision = s.Messages/4, count.Estimated },
			}},
			{name: "bounds from above", says: "24 messages wait, and the adapter says at least 25", fault: fault{
				read: func(s *messaging.SubscriptionState) { s.Messages, s.Precision = s.Messages+1, count.AtLeast },
			}},
			{name: "bounds by nothing", says: "24 messages wait, and the adapter says at least 0", fault: fault{
				read: func(s *messaging.SubscriptionState) { s.Messages, s.Precision = 0, count.AtLeast },
			}},
			{name: "counts what was settled", says: "0 messages wait, and the adapter says 24", fault: fault{
				read: func(s *messaging.SubscriptionState) { s.Messages = max(s.Messages, s.Settled) },
			}},
			{name: "takes another time", says: "the oldest message was published at another time", fault: fault{
				read: func(s *messaging.SubscriptionState) { s.Oldest = time.Unix(0, 0) },
			}},
		},
		"another service": {
			{name: "forgets the service", says: "another service is let in", fault: fault{
				subscribe: func(ctx context.Context, a *adapter, s messaging.Subscription) (messaging.Receiver, error) {
					s.Source = ""
					return a.join(ctx, s)
				},
			}},
			{name: "refuses for now", says: "the error is not permanent", fault: fault{
				subscribe: func(ctx context.Context, a *adapter, s messaging.Subscription) (messaging.Receiver, error) {
					r, err := a.join(ctx, s)
					if found, ok := errors.AsType[*messaging.SourceError](err); ok {
						return nil, found
					}
					return r, err
				},
			}},
		},
		"refused declaration": {
			{name: "makes one after the other", says: "has left a subscription behind", fault: fault{
				declare: func(ctx context.Context, a *adapter, subscriptions []messaging.Subscription) error {
					return oneByOne(subscriptions, func(s messaging.Subscription) error {
						return a.memory.Declare(ctx, nil, []messaging.Subscription{s})
					})
				},
			}},
			{name: "makes all that it can", says: "has left a subscription behind", fault: fault{
				declare: func(ctx context.Context, a *adapter, subscriptions []messaging.Subscription) error {
					var errs []error
					for _, s := range subscriptions {
						errs = append(errs, a.memory.Declare(ctx, nil, []messaging.Subscription{s}))
					}
					return errors.Join(errs...)
				},
			}},
			{name: "forgets the service", says: "another service is let in", fault: fault{
				declare: func(ctx context.Context, a *adapter, subscriptions []messaging.Subscription) error {
					return oneByOne(subscriptions, func(s messaging.Subscription) error {
						s.Source = ""
						return a.memory.Declare(ctx, nil, []messaging.Subscription{s})
					})
				},
			}},
			{name: "refuses for now", says: "the error is not permanent", fault: fault{
				declare: func(ctx context.Context, a *adapter, subscriptions []messaging.Subscription) error {
					err := a.memory.Declare(ctx, nil, subscriptions)
					if found, ok := errors.AsType[*messaging.SourceError](err); ok {
						return found
					}
					return err
				},
			}},
		},
		"late subscription": {{name: "starts at the latest", says: "deadline exceeded", fault: fault{subscribe: latest}}},
		"two subscriptions": {
			{name: "one position for both", says: "deadline exceeded", fault: fault{
				subscribe: func(ctx context.Context, a *adapter, s messaging.Subscription) (messaging.Receiver, error) {
					s.Name = "all"
					return a.join(ctx, s)
				},
			}},
		},
		"unsettled comes again": {
			{name: "settles what is received", says: "deadline exceeded", fault: fault{receive: settlesAtOnce}},
			{name: "settles at Close", says: "deadline exceeded", fault: fault{leave: settlesAtTheEnd}},
			{name: "settles all up to the one", says: "deadline exceeded", fault: fault{ack: settlesUpTo}},
			{name: "loses acks", says: "settled, or never published", fault: fault{
				ack: func(context.Context, *receiver, *messaging.Message) error { return nil },
			}},
			{name: "forgets while nobody is there", says: "deadline exceeded", fault: forgetful()},
		},
		"crash before ack": {
			{name: "settles what is received", says: "deadline exceeded", fault: fault{receive: settlesAtOnce}},
			{name: "settles in the crash", says: "deadline exceeded", fault: fault{crash: func(a *adapter) {
				for _, r := range a.all() {
					r.settleAll()
				}
			}}},
			{name: "settles all up to the one", says: "deadline exceeded", fault: fault{ack: settlesUpTo}},
			{name: "the newest come first", says: "out of order", ordered: true, fault: fault{receive: backwardsAfterCrash}},
		},
		"takeover": {
			{name: "settles at Close", says: "not all messages came again", fault: fault{leave: settlesAtTheEnd}},
			{name: "settles what is received", says: "not all messages came again", fault: fault{receive: settlesAtOnce}},
			{name: "Close waits for ever", says: "Close of a receiver does not end", fault: fault{leave: func(r *receiver) error {
				r.a.hang()
				return r.Receiver.Close()
			}}},
		},
	}
}

// oneByOne calls declare for each subscription, up to the first error.
func oneByOne(all []messaging.Subscription, declare func(messaging.Subscription) error) error {
	for _, s := range all {
		if err := declare(s); err != nil {
			return err
		}
	}
	return nil
}

// renames uses another name for each topic. Its messages carry the name that was asked for only if that is the name of its topic.
func renames(name func(string) string) fault {
	return fault{
		subscribe: func(ctx context.Context, a *adapter, s messaging.Subscription) (messaging.Receiver, error) {
			s.Topic = name(s.Topic)
			return a.join(ctx, s)
		},
		publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
			msgs = slices.Clone(msgs)
			for i := range msgs {
				msgs[i].Topic = name(msgs[i].Topic)
			}
			return a.pass(ctx, msgs)
		},
	}
}

// latest drops what is there when it is subscribed.
func latest(ctx context.Context, a *adapter, s messaging.Subscription) (messaging.Receiver, error) {
	r, err := a.join(ctx, s)
	if err != nil {
		return nil, err
	}
	for range a.memory.Messages(s.Topic) {
		m, err := r.Receive(ctx)
		if err != nil {
			return nil, err
		}
		if err := r.Ack(ctx, m); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// settlesUpTo settles what was received before the message as well.
func settlesUpTo(ctx context.Context, r *receiver, m *messaging.Message) error {
	r.settleAll()
	return r.settle(ctx, m)
}

// forgetful drops what is published while no receiver is open.
func forgetful() fault {
	return fault{
		leave: func(r *receiver) error {
			r.mu.Lock()
			r.gone++
			r.mu.Unlock()
			return r.Receiver.Close()
		},
		publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
			for _, r := range a.all() {
				r.mu.Lock()
				open := r.gone == 0
				r.mu.Unlock()
				if open {
					return a.memory.Publish(ctx, msgs)
				}
			}
			return nil
		},
	}
}

// backwardsAfterCrash has the first receiver of a broker that published nothing, as the one after a crash, hand out the
// newest first.
func backwardsAfterCrash(ctx context.Context, r *receiver) (*messaging.Message, error) {
	r.a.mu.Lock()
	calls := r.a.calls
	r.a.mu.Unlock()
	if calls > 0 {
		return r.next(ctx)
	}
	return newestFirst(0, 2)(ctx, r)
}

// refusesTwins is a sound adapter of a broker that takes no topic whose name differs from that of another only in "." and "_".
func refusesTwins() *fault {
	f := refuses(func(topic string) bool { return strings.HasSuffix(topic, "_a") && !strings.HasSuffix(topic, "_x2E_a") })
	return &f
}

// refuses has no topics with some names.
func refuses(refused func(topic string) bool) fault {
	check := func(topic string) error {
		if refused(topic) {
			return &messaging.TopicError{Topic: topic, Err: errors.New("a topic with a similar name exists")}
		}
		return nil
	}
	return fault{
		publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
			for i := range msgs {
				if err := check(msgs[i].Topic); err != nil {
					return err
				}
			}
			return a.pass(ctx, msgs)
		},
		subscribe: func(ctx context.Context, a *adapter, s messaging.Subscription) (messaging.Receiver, error) {
			if err := check(s.Topic); err != nil {
				return nil, err
			}
			return a.join(ctx, s)
		},
	}
}
