package streams

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/wire"
)

// longestName is the length of the longest name of a stream or consumer that the server takes.
const longestName = 255

// Names makes the names of streams, subjects and consumers. A topic becomes one token, so that no topic can be a wildcard of others.
type Names struct{ Prefix string }

// Stream returns the name of the stream of a topic. It has no dots, which the server does not take.
func (n Names) Stream(topic string) string {
	return strings.ReplaceAll(n.Prefix, ".", "-") + "-" + wire.Escape(topic, "")
}

// Subject returns the subject of a partition.
func (n Names) Subject(topic string, partition int) string {
	return n.Prefix + "." + wire.Escape(topic, "") + "." + strconv.Itoa(partition)
}

// Subjects returns the subjects of all partitions. They are listed, and not written as a wildcard: a message that another program publishes to a
// partition that does not exist is refused by the server, and would otherwise be stored where no consumer looks.
func (n Names) Subjects(topic string, partitions int) []string {
	all := make([]string, partitions)
	for p := range all {
		all[p] = n.Subject(topic, p)
	}
	return all
}

// matches reports whether a filter of the server, with * for a token and > for the rest, matches a subject. An empty filter matches all.
func matches(filter, subject string) bool {
	if filter == "" {
		return true
	}
	tokens := strings.Split(subject, ".")
	for n, token := range strings.Split(filter, ".") {
		switch {
		case n == len(tokens):
			return false
		case token == ">":
			return true
		case token != "*" && token != tokens[n]:
			return false
		}
	}
	return strings.Count(filter, ".") == len(tokens)-1
}

// Members returns the subject on which the receivers of a subscription announce themselves.
func (n Names) Members(s *messaging.Subscription) string {
	return n.Prefix + ".members." + wire.Escape(s.Topic, "") + "." + wire.Escape(s.Name, "")
}

// Consumer returns the name of the consumer of a partition. No name that [wire.Escape] makes contains an @.
func (Names) Consumer(subscription string, partition int) string {
	return wire.Escape(subscription, "") + "@" + strconv.Itoa(partition)
}

// Shared returns the name of the only consumer of a [messaging.Shared] subscription.
func (Names) Shared(subscription string) string { return wire.Escape(subscription, "") }

func (n Names) ValidateTopic(topic string) error {
	if err := event.ValidateTopic(topic); err != nil {
		return err
	}
	if length := len(n.Stream(topic)); length > longestName {
		return &event.InvalidError{
			Field: "Topic", Reason: fmt.Sprintf("makes a stream with a name of %d bytes, and NATS allows %d: give it a shorter name, of letters, digits, "+
				"- and _, because each other byte takes five", length, longestName),
		}
	}
	return nil
}

func (n Names) ValidateSubscription(s messaging.Subscription) error {
	errs := []error{s.Validate(), n.ValidateTopic(s.Topic)}
	if length := len(n.Consumer(s.Name, 1024)); length > longestName {
		errs = append(errs, &event.InvalidError{
			Field: "Subscription.Name", Reason: fmt.Sprintf("makes a consumer with a name of %d bytes, and NATS allows %d: give it a shorter name, of "+
				"letters, digits, - and _, because each other byte takes five", length, longestName),
		})
	}
	if s.Type == messaging.KeyShared {
		errs = append(errs, messaging.Permanent(fmt.Errorf("%w: NATS has failover and shared ones", messaging.ErrNoSuchType)))
	}
	return errors.Join(errs...)
}

// PartitionOf returns the partition of a message: FNV-1a of its routing key, the hash of the server's own {{partition(n,1)}}, so that a subject
// mapping at the server puts messages of other programs where this package puts them. A message without a key has no order, and its id chooses the partition.
//
// It differs from the hash of the outbox's lanes: if both were the same, lanes and partitions would share their skew.
func PartitionOf(env *event.Envelope, partitions int) int {
	key := env.RoutingKey
	if key == "" {
		key = env.ID
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))                // it returns no error
	return int(h.Sum32() % uint32(partitions)) //nolint:gosec // both are small
}
