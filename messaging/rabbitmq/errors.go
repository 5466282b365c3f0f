package rabbitmq

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/oncebox/oncebox/messaging"
)

// sizeLimit finds the broker's limit in its refusal of a message: "message size 5 is larger than configured max size 4".
var sizeLimit = regexp.MustCompile(`message size \d+ is larger than (?:configured )?max size (\d+)`)

// classify turns the reason why the broker closed a channel, or nil if it was the connection, into the error of one message that had no receipt.
// size is that of its payload.
func classify(topic string, refusal *amqp.Error, size int) error {
	if refusal == nil {
		return fmt.Errorf("%w: rabbitmq: the connection was lost", messaging.ErrUnknown)
	}
	switch refusal.Code {
	case amqp.AccessRefused:
		return topicError(topic, fmt.Errorf("the user lacks the permission write (rabbitmqctl set_permissions): %w", refusal))
	case amqp.NotFound, amqp.NotAllowed:
		return topicError(topic, refusal)
	case amqp.PreconditionFailed:
		if match := sizeLimit.FindStringSubmatch(refusal.Reason); match != nil {
			// The broker closes the channel for one message; others that were sent with it are not at fault.
			if limit, err := strconv.Atoi(match[1]); err == nil && size > limit {
				return messaging.Permanent(fmt.Errorf("rabbitmq: the payload has %d bytes, and max_message_size of the broker is %d: set "+
					"Config.MaxMessageBytes (ONCEBOX_RABBITMQ_MAX_MESSAGE_BYTES) to that: %w", size, limit, refusal))
			}
		}
	}
	return fmt.Errorf("%w: rabbitmq: %w", messaging.ErrUnknown, refusal)
}

func topicError(topic string, err error) error {
	return &messaging.TopicError{Topic: topic, Err: fmt.Errorf("rabbitmq: %w", err)}
}

var (
	// errNobody is the reason for a message that the broker has returned.
	errNobody = errors.New("no queue is bound to the topic, so RabbitMQ would throw the message away: declare its subscriptions before publishing " +
		"(oncebox.App.Consume does, or Config.Subscriptions)")
	// errNacked is the reason for a message that the broker has not taken.
	errNacked = errors.New("the broker has not taken the message: a queue of the topic is full (max-length with overflow reject-publish), or has no leader " +
		"at present; `rabbitmq-diagnostics check_if_node_is_quorum_critical` and `rabbitmqctl list_queues name state` show more")
)
