package topics

import (
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/wire"
)

const (
	// Alphabet has the characters that Kafka allows in the name of a topic (org.apache.kafka.common.internals.Topic).
	Alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	// longestName is the length of the longest name of a topic, in bytes.
	longestName = 249
	// ofGroup stands between topic and subscription in the name of a consumer group. No topic has it in its name, so that two subscriptions never
	// get the same group.
	ofGroup = ":"
)

// Prefix begins the names of topics and groups.
type Prefix string

// FullName returns Kafka's name of a topic.
func (c Prefix) FullName(topic string) string { return string(c) + wire.Escape(topic, ".") }

// Group returns the name of the consumer group of a subscription.
func (c Prefix) Group(s messaging.Subscription) string {
	return c.FullName(s.Topic) + ofGroup + s.Name
}

// ValidateTopic checks the name of a topic.
func (c Prefix) ValidateTopic(name string) error {
	if err := event.ValidateTopic(name); err != nil {
		return err
	}
	if full := c.FullName(name); len(full) > longestName {
		return &event.InvalidError{Field: "Topic", Reason: fmt.Sprintf("takes %d bytes as the name of a topic of Kafka (%s), at most %d are allowed",
			len(full), full, longestName)}
	}
	return nil
}

// ValidateSubscription checks the names of a subscription and its topic, and its type.
func (c Prefix) ValidateSubscription(s messaging.Subscription) error {
	err := s.Validate()
	if err == nil {
		err = c.ValidateTopic(s.Topic)
	}
	if s.Type == messaging.KeyShared || s.Type == messaging.Shared {
		err = errors.Join(err, messaging.Permanent(fmt.Errorf("%w: subscription %q of topic %q is of type %s, and the consumers of a group in Kafka "+
			"share partitions: use failover", messaging.ErrNoSuchType, s.Name, s.Topic, s.Type)))
	}
	return err
}
