package rabbitmq

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/wire"
)

const (
	// separator stands between the parts of a name. No escaped part contains it.
	separator = ":"
	// maxName is the length of the longest name and routing key, in bytes (AMQP 0-9-1, section 4.2.5.3).
	maxName = 255
)

// names builds the names of exchanges and queues.
type names struct{ exchange string }

// lanes is the number of lanes of each topic. Publishers and subscriptions have to agree on it, so it never changes.
const lanes = 32

// laneOf returns the lane of a message: that of its key, always. A message without a key has no order, so it may take any.
func laneOf(key, id string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(cmp.Or(key, id))) // it never fails
	return int(h.Sum32() % lanes)
}

// topicKey returns the routing key of a topic. "*" and "#" are escaped, because they are wildcards in the binding of a topic exchange. Words of a
// topic stay separated by dots, so that other programs can bind to "order.*.#".
func topicKey(topic string) string { return wire.Escape(topic, ".") }

// laneKey returns the routing key of a message: its topic, and its lane as a further word. No escaped topic has an "@".
func laneKey(topic string, lane int) string { return topicKey(topic) + ".@" + strconv.Itoa(lane) }

// of returns the exchange of a subscription. It is also the beginning of the names of its queues.
func (n names) of(topic, subscription string) string {
	return n.exchange + separator + wire.Escape(topic, ".") + separator + wire.Escape(subscription, ".")
}

// queue returns one of the queues of a subscription.
func queueName(exchange string, number int) string {
	return exchange + separator + strconv.Itoa(number)
}

// value returns the text that stores a value in an argument of an exchange, see owner. It begins with the name of the topic exchange, so that the
// permissions for that name suffice.
func (n names) value(what, value string) string {
	return n.exchange + separator + what + separator + value
}

// longest is the room that the longest suffix of a subscription's name takes: ":installation".
const longest = len(separator + installationMark)

func (names) validateTopic(topic string) error {
	if err := event.ValidateTopic(topic); err != nil {
		return err
	}
	if n := len(laneKey(topic, lanes-1)); n > maxName {
		return &event.InvalidError{Field: "Topic", Reason: fmt.Sprintf(
			"takes %d bytes in a routing key of RabbitMQ, where at most %d are allowed", n, maxName)}
	}
	return nil
}

func (n names) validateSubscription(s messaging.Subscription) error {
	if err := errors.Join(s.Validate(), validateType(s.Type)); err != nil {
		return err
	}
	if err := n.validateTopic(s.Topic); err != nil {
		return err
	}
	if length := len(n.of(s.Topic, s.Name)) + longest; length > maxName {
		return &event.InvalidError{Field: "Subscription.Name", Reason: fmt.Sprintf(
			"makes a name of %d bytes with topic and exchange, at most %d are allowed: shorten one of the three", length, maxName)}
	}
	for what, value := range map[string]string{"Source": s.Source, "Installation": s.Installation} {
		if len(n.value(sourceMark, wire.Escape(value, "."))) > maxName {
			return &event.InvalidError{Field: "Subscription." + what, Reason: "is too long to be stored at RabbitMQ"}
		}
	}
	return nil
}

// validateType refuses the type that RabbitMQ does not have. A queue has one order for all its messages, so it cannot give each key to a consumer.
func validateType(t messaging.SubscriptionType) error {
	if t != messaging.KeyShared {
		return nil
	}
	return messaging.Permanent(fmt.Errorf("%w: RabbitMQ has no key_shared; choose failover, which keeps the order of each key, and Config.Queues for how "+
		"many keys are handled side by side", messaging.ErrNoSuchType))
}
