package pulsar

import (
	"context"
	"errors"
	"fmt"
	"testing"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/messaging"
)

// Whatever the client can say of a message is about this message, about its topic, or leaves open whether it was stored.
// Nothing is a plain refusal, which would cost an attempt.
func TestEveryErrorHasAClass(t *testing.T) {
	const permanent, topic, unknown = "permanent", "topic", "unknown"
	class := func(err error) string {
		if trouble, ok := errors.AsType[*messaging.TopicError](err); ok {
			require.Equal(t, "order", trouble.Topic)
			return topic
		}
		if messaging.IsPermanent(err) {
			return permanent
		}
		require.ErrorIs(t, err, messaging.ErrUnknown)
		return unknown
	}
	for _, c := range []struct {
		err   error
		class string
	}{
		{pulsarclient.ErrMessageTooLarge, permanent},
		{pulsarclient.ErrInvalidMessage, permanent},
		{pulsarclient.ErrMetaTooLarge, permanent},
		{pulsarclient.ErrTopicNotfound, topic},
		{pulsarclient.ErrTopicTerminated, topic},
		{pulsarclient.ErrProducerBlockedQuotaExceeded, topic},
		{pulsarclient.ErrProducerFenced, topic},
		{errors.New("server error: AuthorizationError: not allowed to produce"), topic},
		{errors.New("server error: ProducerBusy: the topic has a producer of that name"), topic},
		{errors.New("server error: IncompatibleSchema: a bytes schema is not allowed"), topic},
		{pulsarclient.ErrSendTimeout, unknown},
		{pulsarclient.ErrContextExpired, unknown},
		{pulsarclient.ErrProducerClosed, unknown},
		{pulsarclient.ErrFailAddToBatch, unknown},
		{errors.New("server error: PersistenceError: bookie handle is not available"), unknown},
		{errors.New("server error: ServiceNotReady: the namespace is being unloaded"), unknown},
		{errors.New("connection closed"), unknown},
		{context.DeadlineExceeded, unknown},
		{context.Canceled, unknown},
	} {
		for _, err := range []error{c.err, fmt.Errorf("wrapped: %w", c.err)} {
			require.Equal(t, c.class, class(classify("order", err, true)), err)
		}
	}
	require.Equal(t, unknown, class(classify("order", pulsarclient.ErrMetaTooLarge, false)), "any message of the batch may be meant")
	require.NoError(t, classify("order", nil, true))
}
