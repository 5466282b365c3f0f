package messaging

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/quietlog"
)

var (
	// ErrBrokerDown means that the broker cannot be reached: nothing was sent, and nothing will be until it is back.
	// No attempt of any message is spent.
	ErrBrokerDown error = awayError("messaging: the broker cannot be reached")
	// ErrUnknown means that no receipt came in time: the message may have been stored, or may be stored yet. It must be
	// sent again, with the same id, and no attempt is spent.
	ErrUnknown error = awayError("messaging: the broker has not confirmed the message; it may have been stored")
	// ErrBehind means that the message was not handed over because an earlier one of its key was not stored.
	ErrBehind = errors.New("messaging: the message was not sent, because an earlier message with the same key was not stored")
)

// awayError is an error of the broker, not of a message.
type awayError string

func (e awayError) Error() string { return string(e) }

// Away says for the log what all that use it fail by.
func (awayError) Away() string { return quietlog.Broker }

// Publisher sends messages to a broker.
type Publisher interface {
	// Publish sends msgs in the order given and returns when each is accounted for, at the latest a moment after ctx is done. nil: the
	// broker confirmed every one. A [*PublishError] names the messages that it did not confirm; any other error holds for all of them.
	//
	// Per (topic, key) the confirmed messages are a prefix of those handed over. The key is the routing key. Calls for
	// different keys may run at once; the caller never has two calls with one key under way.
	Publish(ctx context.Context, msgs []event.Envelope) error
}

// PublishError names the messages of one call that were not confirmed, by their index. See the package documentation
// for the classes.
type PublishError struct {
	// Failed has the error of each message that was not confirmed, by its index in the call, from 0.
	Failed map[int]error
}

func (e *PublishError) Error() string {
	return fmt.Sprintf("messaging: the broker has not confirmed %d messages of the call, %s", len(e.Failed), firstOf(e.Failed))
}

// Unwrap returns the errors of all messages.
func (e *PublishError) Unwrap() []error { return slices.Collect(maps.Values(e.Failed)) }

// TopicError means that one topic takes nothing at present: missing, terminated, over its quota, not permitted. Other
// topics go on, and no attempt of any message is spent.
type TopicError struct {
	// Topic is the logical topic.
	Topic string
	// Err is what the broker said.
	Err error
}

func (e *TopicError) Error() string {
	return "messaging: the broker accepts no messages for topic " + e.Topic + ": " + e.Err.Error()
}

// Unwrap returns the broker's error.
func (e *TopicError) Unwrap() error { return e.Err }
