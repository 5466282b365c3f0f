package pulsar

import (
	"context"
	"errors"
	"fmt"
	"strings"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
)

// isNoRoom reports whether the client did not take the message because its queue is full. It may take it a moment later.
func isNoRoom(err error) bool {
	return errors.Is(err, pulsarclient.ErrSendQueueIsFull)
}

// errNotStored is the error for a receipt without a place. A broker with deduplication sends such a receipt when it drops a message
// as a duplicate. It may be right, after a lost connection, or it may have mixed up two producers.
var errNotStored = errors.New("the broker treated the message as a duplicate and did not store it")

// isPlace reports whether a receipt says where the message is stored. Pulsar writes -1:-1 if it does not.
func isPlace(id pulsarclient.MessageID) bool {
	return id != nil && id.LedgerID() >= 0 && id.EntryID() >= 0
}

// isBatchTooLarge reports whether a whole batch was refused because one of its messages is too large.
func isBatchTooLarge(err error) bool {
	return strings.Contains(err.Error(), "exceeds MaxMessageSize") && !errors.Is(err, pulsarclient.ErrMessageTooLarge)
}

// classify turns an error that the client reported for one message into an error of one of the classes of package messaging. alone says
// that the message had a batch of its own.
func classify(topic string, err error, alone bool) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pulsarclient.ErrMessageTooLarge), errors.Is(err, pulsarclient.ErrInvalidMessage),
		alone && isBatchTooLarge(err):
		return messaging.Permanent(fmt.Errorf("pulsar: %w", err))
	case isBatchTooLarge(err):
		return fmt.Errorf("%w: pulsar: it was not stored, because another message of its batch is too large: %w", messaging.ErrUnknown, err)
	case answer.IsTopicTrouble(err):
		return &messaging.TopicError{Topic: topic, Err: fmt.Errorf("pulsar: %w", err)}
	default:
		return fmt.Errorf("%w: pulsar: %w", messaging.ErrUnknown, err)
	}
}

// notHandedOver returns the error of a message that was not handed to the client for reasons outside of the message: no attempt is spent.
func notHandedOver(ctx context.Context) error {
	return fmt.Errorf("%w: the message was not sent: %w", messaging.ErrUnknown, context.Cause(ctx))
}
