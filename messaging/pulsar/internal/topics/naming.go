package topics

import (
	"errors"
	"fmt"
	"strings"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// ValidateTopic checks the name of a topic: [event.ValidateTopic] accepts it, and it has neither "+", which the admin API cannot express,
// nor "-partition-", which marks the partitions of a topic.
func ValidateTopic(name string) error {
	if err := event.ValidateTopic(name); err != nil {
		return err
	}
	switch {
	case strings.Contains(name, "+"):
		return &event.InvalidError{Field: "Topic", Reason: `must not contain "+": Pulsar's admin API reads it as a blank`}
	case strings.Contains(name, partitionMark):
		return &event.InvalidError{Field: "Topic", Reason: `is named like a partition of another topic: Pulsar marks partitions by "` + partitionMark + `"`}
	default:
		return nil
	}
}

// partitionMark stands between the name of a topic and the number of its partition. Pulsar makes a topic with this text in its name, and
// then does not find it.
const partitionMark = "-partition-"

// ValidateSubscription checks the names of a subscription and its topic.
func ValidateSubscription(s messaging.Subscription) error {
	err := s.Validate()
	if err == nil {
		err = ValidateTopic(s.Topic)
	}
	// The admin API decodes these two characters in a name, so the path would address another subscription.
	if strings.ContainsAny(s.Name, "%+") {
		err = errors.Join(err, fmt.Errorf(`pulsar: subscription %q must not contain "%%" or "+"`, s.Name))
	}
	return err
}
