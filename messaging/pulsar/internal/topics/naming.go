package topics

import (
	"errors"
	"fmt"
	"strings"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// ValidateTopic checks the name of a topic: it is one by [event.ValidateTopic], has no "+", which the admin API cannot say, and no "-partition-",
// by which Pulsar tells partitions.
func ValidateTopic(name string) error {
	if err := event.ValidateTopic(name); err != nil {
		return err
	}
	switch {
	case strings.Contains(name, "+"):
		return &event.InvalidError{Field: "Topic", Reason: `must not contain "+": Pulsar's admin API reads it as a blank`}
	case strings.Contains(name, partitionMark):
		return &event.InvalidError{Field: "Topic", Reason: `is named like a partition of another one: Pulsar tells partitions by "` + partitionMark + `"`}
	default:
		return nil
	}
}

// partitionMark stands between the name of a topic and the number of its partition. A topic that has it in its name is made, and then not found.
const partitionMark = "-partition-"

// ValidateSubscription checks the names of a subscription and its topic.
func ValidateSubscription(s messaging.Subscription) error {
	err := s.Validate()
	if err == nil {
		err = ValidateTopic(s.Topic)
	}
	if strings.ContainsAny(s.Name, "%+") {
		err = errors.Join(err, fmt.Errorf(`pulsar: subscription %q must not contain "%%" or "+"`, s.Name))
	}
	return err
}
