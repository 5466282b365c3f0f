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
	// ErrBrokerDown means that the broker cannot be reached. The message was not sent, and no message can be until the broker is back.
	// This costs the message no attempt.
	ErrBrokerDown error = awayError("messaging: the broker cannot be reached")
	// ErrUnknown means that no receipt came in time: the message may have been stored, or may still be stored. It must be sent again with the same
	// id. This costs the message no attempt.
	ErrUnknown error = awayError("messaging: the broker has not confirmed the message; it may have been stored")
	// ErrBehind means that the message was not sent because an earlier message of its key was not stored.
	ErrBehind = errors.New("messaging: the message was not sent, because an earlier message with the same key was not stored")
)

// awayError is an error that is caused by the broker and not by the message.
type awayError string

func (e awayError) Error() string { return string(e) }

// Away returns the name under which package quietlog counts such failures as one outage, whichever component reports them.
func (awayError) Away() string { return quietlog.Broker }

// Publisher sends messages to a broker. See the package documentation for the classes of its errors.
type Publisher interface {
	// Publish sends msgs in this order and returns when the fate of each is known, at the latest a moment after ctx is done. nil means that the
	// broker has confirmed every message. A [*PublishError] names the messages without a confirmation; any other error applies to all of them.
	//
	// Of each topic and routing key, the confirmed messages are the first ones: no message is confirmed behind an unconfirmed one. Calls for
	// different keys may run at the same time; the caller never runs two calls with the same key at once.
	Publish(ctx context.Context, msgs []event.Envelope) error
}

// PublishError names the messages of one call that were not confirmed, by their index. See the package documentation for the classes of errors.
type PublishError struct {
	// Failed has the error of each message that was not confirmed, by its index in the call, from 0.
	Failed map[int]error
}

func (e *PublishError) Error() string {
	return fmt.Sprintf("messaging: the broker has not confirmed %d messages of the call, %s", len(e.Failed), firstOf(e.Failed))
}

// Unwrap returns the errors of all messages.
func (e *PublishError) Unwrap() []error { return slices.Collect(maps.Values(e.Failed)) }

// TopicError means that one topic accepts no message at present: it is missing, terminated, over its quota, or not permitted. Other topics are not
// affected. This costs the message no attempt.
type TopicError struct {
	// Topic is the logical topic.
	Topic string
	// Err is the broker's error.
	Err error
}

func (e *TopicError) Error() string {
	return "messaging: the broker accepts no messages for topic " + e.Topic + ": " + e.Err.Error()
}

// Unwrap returns the broker's error.
func (e *TopicError) Unwrap() error { return e.Err }
