package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/oncebox/oncebox/messaging"
)

// topology makes, or checks, what a subscription needs at the broker:
//
//	topic exchange -> exchange of the subscription -> its queues
//
// The exchange of a subscription gives each lane of the topic to one of its queues. So the queue of a key depends on nothing but the key and the
// number of queues. The exchanges of the consistent-hash plugin would do without lanes, but 3.10 builds their ring anew when it starts, from
// bindings that it recovers side by side: after a restart a key may have another queue, and overtake its own messages in the former one.
//
// Queues are bound before the subscription gets its first message.
type topology struct {
	names names
	make  bool
	count int // queues of a new Failover subscription
}

// layout is what cannot be changed about a subscription that has messages.
type layout struct {
	kind   messaging.SubscriptionType
	queues int
}

func (t *topology) layoutOf(s messaging.Subscription) layout {
	if s.Type == messaging.Shared {
		return layout{s.Type, 1} // several queues would only make several orders
	}
	return layout{s.Type, t.count}
}

func (l layout) String() string { return fmt.Sprintf("%s-%d", l.kind, l.queues) }

// queuesOf returns the names of the queues of a subscription.
func (t *topology) queuesOf(s messaging.Subscription) []string {
	exchange := t.names.of(s.Topic, s.Name)
	var queues []string
	for n := range t.layoutOf(s).queues {
		queues = append(queues, queueName(exchange, n))
	}
	return queues
}

// declare makes the exchanges and queues of a subscription and binds them, or checks that they exist. The errors are those of the broker, with what
// to do about them.
func (t *topology) declare(ctx context.Context, at *session, s messaging.Subscription) error {
	var err error
	if t.make {
		err = at.with(ctx, func(ch *amqp.Channel) error { return t.makeAll(ch, at, s) })
	} else {
		err = t.check(ctx, at, s)
	}
	if err != nil {
		return t.explain(s, err)
	}
	return t.own(ctx, at, s)
}

// inspect returns an error if a part of a subscription exists that declare would refuse. It makes nothing, and skips what does not exist. AMQP
// compares settings only when a part is declared, so each part is declared after the broker has said that it exists.
func (t *topology) inspect(ctx context.Context, at *session, s messaging.Subscription) error {
	if !t.make {
		return nil // declare makes nothing either
	}
	looks := topology{names: t.names, count: t.count}
	if err := looks.own(ctx, at, s); err != nil {
		return err
	}
	exchange := t.names.of(s.Topic, s.Name)
	parts := []func(ch *amqp.Channel) error{func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclarePassive(exchange, amqp.ExchangeDirect, true, false, false, false, nil); err != nil {
			return err
		}
		return t.makeExchange(ch, s)
	}}
	for _, queue := range t.queuesOf(s) {
		parts = append(parts, func(ch *amqp.Channel) error {
			if _, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil); err != nil {
				return err
			}
			_, err := ch.QueueDeclare(queue, true, false, false, false, queueArgs(at.major(), s.Type))
			return err
		})
	}
	for _, part := range parts {
		if err := at.with(ctx, part); err != nil && !isCode(err, amqp.NotFound) {
			return t.explain(s, err)
		}
	}
	return nil
}

func (t *topology) makeAll(ch *amqp.Channel, at *session, s messaging.Subscription) error {
	exchange := t.names.of(s.Topic, s.Name)
	if err := t.makeTopicExchange(ch); err != nil {
		return err
	}
	if err := t.makeExchange(ch, s); err != nil {
		return err
	}
	queues := t.queuesOf(s)
	for _, queue := range queues {
		if _, err := ch.QueueDeclare(queue, true, false, false, false, queueArgs(at.major(), s.Type)); err != nil {
			return err
		}
	}
	topic := topicKey(s.Topic)
	bindings := map[string]string{topic: queues[0]} // of other programs, which know no lanes
	for lane := range lanes {
		bindings[laneKey(s.Topic, lane)] = queues[lane%len(queues)]
	}
	for key, queue := range bindings {
		if err := ch.QueueBind(queue, key, exchange, true, nil); err != nil { // without an answer: the next declaration has one
			return err
		}
	}
	if err := ch.ExchangeBind(exchange, topic, t.names.exchange, false, nil); err != nil {
		return err
	}
	return ch.ExchangeBind(exchange, topic+".*", t.names.exchange, false, nil)
}

func (t *topology) makeTopicExchange(ch *amqp.Channel) error {
	return ch.ExchangeDeclare(t.names.exchange, amqp.ExchangeTopic, true, false, false, false, nil)
}

// makeExchange makes the exchange of a subscription, which stores its layout.
func (t *topology) makeExchange(ch *amqp.Channel, s messaging.Subscription) error {
	args := amqp.Table{alternate: t.names.value(layoutMark, t.layoutOf(s).String())}
	return ch.ExchangeDeclare(t.names.of(s.Topic, s.Name), amqp.ExchangeDirect, true, false, false, false, args)
}

// quorum is the type of all queues.
const quorum = "quorum"

// queueArgs are the arguments of a queue of RabbitMQ with this major version. Since version 4 a quorum queue drops a message at the 20th failed
// delivery, unless its limit is switched off; earlier versions have no limit, and refuse a negative one.
func queueArgs(major int, kind messaging.SubscriptionType) amqp.Table {
	args := amqp.Table{"x-queue-type": quorum}
	if kind == messaging.Failover {
		args["x-single-active-consumer"] = true
	}
	if major >= 4 {
		args["x-delivery-limit"] = -1
	}
	return args
}

// check looks for the exchanges and queues without making any. It sees their names only: AMQP shows neither arguments nor bindings.
func (t *topology) check(ctx context.Context, at *session, s messaging.Subscription) error {
	exists := func(what func(ch *amqp.Channel) error) error { return at.with(ctx, what) }
	exchange := t.names.of(s.Topic, s.Name)
	for _, name := range []string{t.names.exchange, exchange} {
		err := exists(func(ch *amqp.Channel) error {
			return ch.ExchangeDeclarePassive(name, amqp.ExchangeTopic, true, false, false, false, nil)
		})
		if err != nil {
			return err
		}
	}
	queue := func(name string) error {
		return exists(func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
			return err
		})
	}
	for _, name := range t.queuesOf(s) {
		if err := queue(name); err != nil {
			return err
		}
	}
	further := queueName(exchange, t.layoutOf(s).queues)
	err := queue(further)
	if isCode(err, amqp.NotFound) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("%w: the broker has also the queue %s, which would have no consumer: set Config.Queues (ONCEBOX_RABBITMQ_QUEUES) to the "+
			"number of queues that exist", errLayout, further)
	}
	return err
}

var errLayout = errors.New("the subscription has another layout")

// explain adds to a refusal of the broker what to do about it.
func (t *topology) explain(s messaging.Subscription, err error) error {
	refusal, ok := errors.AsType[*amqp.Error](err)
	if !ok {
		return err
	}
	wanted, exchange := t.layoutOf(s), t.names.of(s.Topic, s.Name)
	switch {
	case refusal.Code == amqp.NotFound && !t.make:
		return fmt.Errorf("it does not exist, and Config.Declare (ONCEBOX_RABBITMQ_DECLARE) is \"check\": let an operator make it, or one run of this "+
			"program with \"make\": %w", err)
	case refusal.Code == amqp.AccessRefused:
		return fmt.Errorf("the user lacks a permission: grant configure, write and read on names that begin with %q (rabbitmqctl set_permissions); or let "+
			"an operator make the subscription, set Config.Declare (ONCEBOX_RABBITMQ_DECLARE) to \"check\", and grant read: %w", t.names.exchange, err)
	case refusal.Code == amqp.PreconditionFailed && strings.Contains(refusal.Reason, "for exchange '"+exchange+"'"):
		return fmt.Errorf("%w: it was made with other settings than %s, and a change would move keys to other queues, where they overtake their own "+
			"earlier messages. Set Config.Queues (ONCEBOX_RABBITMQ_QUEUES) and the type to what it was made with; or let its consumers empty it, delete "+
			"the exchange %s and its queues, and let this program make it anew: %w", errLayout, wanted, exchange, err)
	case refusal.Code == amqp.PreconditionFailed:
		return fmt.Errorf("it was made with other arguments. Let its consumers empty it, with Config.Declare (ONCEBOX_RABBITMQ_DECLARE) \"check\" for so "+
			"long; delete it (rabbitmqctl delete_queue NAME; messages in it are lost), and let this program make it anew: %w", err)
	default:
		return err
	}
}

// isCode reports whether the broker has refused something with this code.
func isCode(err error, code int) bool {
	refusal, ok := errors.AsType[*amqp.Error](err)
	return ok && refusal.Code == code
}

// isRefusal reports whether err is an answer of the broker that another try does not change.
func isRefusal(err error) bool {
	return isCode(err, amqp.NotFound) || isCode(err, amqp.AccessRefused) || isCode(err, amqp.PreconditionFailed) || isCode(err, amqp.NotAllowed) ||
		isCode(err, amqp.ResourceLocked) || errors.Is(err, errLayout)
}
