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

// isNoRoom: the client took nothing; it may a moment later.
func isNoRoom(err error) bool {
	return errors.Is(err, pulsarclient.ErrSendQueueIsFull)
}

// errNotStored is what a broker that deduplicates means by a receipt without a place: it takes the message for a message that it
// has, and threw it away. That may be so, after a lost connection, or it may have mixed up two producers.
var errNotStored = errors.New("the broker took the message for a duplicate and did not store it")

// isPlace tells whether a receipt says where the message is stored. -1:-1 is nowhere.
func isPlace(id pulsarclient.MessageID) bool {
	return id != nil && id.LedgerID() >= 0 && id.EntryID() >= 0
}

// isBatchTooLarge: the whole batch was refused, because of one of its messages.
func isBatchTooLarge(err error) bool {
	return strings.Contains(err.Error(), "exceeds MaxMessageSize") && !errors.Is(err, pulsarclient.ErrMessageTooLarge)
}

// classify gives an error that the client reported for one message its class. alone: it did not share a batch.
func classify(topic string, err error, alone bool) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pulsarclient.ErrMessageTooLarge), errors.Is(err, pulsarclient.ErrInvalidMessage),
		alone && isBatchTooLarge(err):
		return messaging.Permanent(fmt.Errorf("pulsar: %w", err))
	case isBatchTooLarge(err):
		return fmt.Errorf("%w: not stored, a message of its batch is too large: pulsar: %w", messaging.ErrUnknown, err)
	case answer.IsTopicTrouble(err):
		return &messaging.TopicError{Topic: topic, Err: fmt.Errorf("pulsar: %w", err)}
	default:
		return fmt.Errorf("%w: pulsar: %w", messaging.ErrUnknown, err)
	}
}

// notHandedOver is the class of a message that the client never saw, for no fault of the message's: it costs no attempt.
func notHandedOver(ctx context.Context) error {
	return fmt.Errorf("%w: not handed over: %w", messaging.ErrUnknown, context.Cause(ctx))
}
