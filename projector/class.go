package projector

import (
	"errors"

	"github.com/oncebox/oncebox/messaging"
)

// class says what an error of the publisher is about. It decides who waits: the message and its key, the topic, or
// everything.
type class int

const (
	classMessage class = iota // the broker refused this message: the only class that counts as a try of the event
	classTopic                // the topic is in trouble
	classBroker               // nothing can be sent, or it is unknown whether the message was stored
	classBehind               // an earlier message of its key was not stored, which says nothing about topic or broker
)

// classify sorts errors from the most specific to the least. An error that says nothing about itself is one of the
// message: then the message becomes a dead letter in the end, instead of holding up a topic for ever.
func classify(err error) class {
	var topic *messaging.TopicError
	switch {
	case messaging.IsPermanent(err):
		return classMessage
	case errors.As(err, &topic):
		return classTopic
	case errors.Is(err, messaging.ErrBrokerDown), errors.Is(err, messaging.ErrUnknown):
		return classBroker
	case errors.Is(err, messaging.ErrBehind):
		return classBehind
	default:
		return classMessage
	}
}
