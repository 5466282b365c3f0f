package schedule

import (
	"errors"

	"github.com/oncebox/oncebox/messaging"
)

// class says what an error of the publisher is about. It decides who waits: the message and its key, the topic, or
// everything.
type class int

const (
	ClassMessage class = iota // the broker refused this message: the only class that counts as a try of the event
	ClassTopic                // the topic is in trouble
	ClassBroker               // nothing can be sent, or it is unknown whether the message was stored
	classBehind               // an earlier message of its key was not stored, which says nothing about topic or broker
)

// Classify sorts errors from the most specific to the least. An error that says nothing about itself is one of the
// message: then the message becomes a dead letter in the end, instead of holding up a topic for ever.
func Classify(err error) class {
	var topic *messaging.TopicError
	switch {
	case messaging.IsPermanent(err):
		return ClassMessage
	case errors.As(err, &topic):
		return ClassTopic
	case errors.Is(err, messaging.ErrBrokerDown), errors.Is(err, messaging.ErrUnknown):
		return ClassBroker
	case errors.Is(err, messaging.ErrBehind):
		return classBehind
	default:
		return ClassMessage
	}
}
