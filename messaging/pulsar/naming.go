package pulsar

import (
	"errors"
	"fmt"
	"strings"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

var _ messaging.Naming = (*Broker)(nil)

// ValidateTopic is that of [messaging.Naming], as [ValidateTopic].
func (*Broker) ValidateTopic(name string) error { return ValidateTopic(name) }

// ValidateSubscription is that of [messaging.Naming].
func (*Broker) ValidateSubscription(s messaging.Subscription) error { return validSubscription(s) }

// ValidateTopic checks the name of a topic: it is one by [event.ValidateTopic], has no "+", which the admin API cannot say, and no "-partition-",
// by which Pulsar tells partitions. It is for a process that writes events and has no [Broker]: uow.Config.ValidateTopic,
// outbox.Config.ValidateTopic.
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

func validSubscription(s messaging.Subscription) error {
	err := s.Validate()
	if err == nil {
		err = ValidateTopic(s.Topic)
	}
	if strings.ContainsAny(s.Name, "%+") {
		err = errors.Join(err, fmt.Errorf(`pulsar: subscription %q must not contain "%%" or "+"`, s.Name))
	}
	return err
}
