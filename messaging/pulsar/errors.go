package pulsar

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/oncebox/oncebox/messaging"
)

// topicTroubles are the broker's answers that concern one topic and do not pass by themselves. The client knows them by
// text only.
var topicTroubles = []string{ //nolint:gochecknoglobals // a constant
	"TopicNotFound", "TopicTerminated", "AuthorizationError", "ProducerBlockedQuotaExceeded", "InvalidTopicName", "IncompatibleSchema",
	"NotAllowedError", "ProducerFenced", "ProducerBusy", "ConsumerBusy", "SubscriptionNotFound", "topic not found", "topic terminated",
	"producer blocked", "producer fenced", "Namespace not found", "NamespaceNotFound", "Policies not found", "Tenant not found",
	"Topic does not exist", "Namespace does not exist",
}

func isTopicTrouble(err error) bool {
	text := err.Error()
	for _, trouble := range topicTroubles {
		if strings.Contains(text, trouble) {
			return true
		}
	}
	return false
}

// isAnswer tells whether err is the broker's own word, as opposed to silence.
func isAnswer(err error) bool {
	return isTopicTrouble(err) || strings.Contains(err.Error(), "MetadataError")
}

// errNotLetIn says what to do when the broker refuses the credentials.
var errNotLetIn = errors.New("the broker does not let us in: correct Config.Token (ONCEBOX_PULSAR_TOKEN), TokenFile (ONCEBOX_PULSAR_TOKEN_FILE) " +
	"or TLSCert and TLSKey (ONCEBOX_PULSAR_TLS_CERT, ONCEBOX_PULSAR_TLS_KEY)")

func isNotLetIn(err error) bool {
	return errors.Is(err, errNotLetIn) || strings.Contains(err.Error(), "AuthenticationError")
}

// isForeign tells whether a subscription belongs to another service, or to another database of this one.
func isForeign(err error) bool {
	_, source := errors.AsType[*messaging.SourceError](err)
	_, installation := errors.AsType[*messaging.InstallationError](err)
	return source || installation
}

// isMissing tells whether the broker knows no such topic, namespace or tenant.
func isMissing(err error) bool {
	text := strings.ToLower(err.Error())
	return isStatus(err, http.StatusNotFound) || isTopicTrouble(err) &&
		(strings.Contains(text, "notfound") || strings.Contains(text, "not found") || strings.Contains(text, "does not exist"))
}

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
	case isTopicTrouble(err):
		return &messaging.TopicError{Topic: topic, Err: fmt.Errorf("pulsar: %w", err)}
	default:
		return fmt.Errorf("%w: pulsar: %w", messaging.ErrUnknown, err)
	}
}

// notHandedOver is the class of a message that the client never saw, for no fault of the message's: it costs no attempt.
func notHandedOver(ctx context.Context) error {
	return fmt.Errorf("%w: not handed over: %w", messaging.ErrUnknown, context.Cause(ctx))
}

func brokerDown(call, url string, err error) error {
	return fmt.Errorf("%w: pulsar: %s: %s: %w", messaging.ErrBrokerDown, call, url, err)
}
