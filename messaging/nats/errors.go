package nats

import (
	"errors"
	"fmt"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/nats/internal/session"
	"github.com/oncebox/oncebox/messaging/nats/internal/streams"
)

// The codes of JetStream's errors that concern a message and not its stream. Package jetstream does not name all of them.
const (
	codeHeadersTooLarge jetstream.ErrorCode = 10097
	codeInProcess       jetstream.ErrorCode = 10158 // a copy of the message is being stored at this moment
)

// badRequest is the class of errors of requests that cannot be, as in HTTP.
const badRequest = 400

// The codes of errors that depend on how many servers there are.
const (
	codeFewServers jetstream.ErrorCode = 10005 // at present
	codeOneServer  jetstream.ErrorCode = 10074 // it is no cluster, and has no replicas
)

// classify turns the error of one message into an error of one of the classes of package messaging. A refusal by JetStream is one of the stream, and
// costs the message no attempt, but for the few that are about the message itself.
func classify(topic string, err error) error {
	api, refused := refusal(err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, natsclient.ErrMaxPayload),
		refused && (api.ErrorCode == jetstream.JSErrCodeStreamMessageExceedsMaximum || api.ErrorCode == codeHeadersTooLarge):
		return messaging.Permanent(fmt.Errorf("nats: the message is larger than the server takes: %w", err))
	case session.WasNotSent(err):
		return fmt.Errorf("%w: nats: %w", messaging.ErrBrokerDown, err)
	case refused && api.ErrorCode == codeInProcess:
		return fmt.Errorf("%w: nats: %w", messaging.ErrUnknown, err)
	case refused, errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, natsclient.ErrNoResponders),
		errors.Is(err, session.ErrDenied):
		return &messaging.TopicError{Topic: topic, Err: fmt.Errorf("nats: %w", err)}
	default:
		return fmt.Errorf("%w: nats: %w", messaging.ErrUnknown, err)
	}
}

// refusal returns what the server has answered, if err is an answer.
func refusal(err error) (*jetstream.APIError, bool) {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api, true
	}
	if known, ok := errors.AsType[jetstream.JetStreamError](err); ok && known.APIError() != nil {
		return known.APIError(), true
	}
	return nil, false
}

// lasts reports whether waiting does not mend an error of a connection or a declaration.
func lasts(err error) bool {
	for _, lasting := range []error{
		natsclient.ErrAuthorization, natsclient.ErrAuthExpired, natsclient.ErrAuthRevoked, natsclient.ErrAccountAuthExpired,
		natsclient.ErrSecureConnRequired, natsclient.ErrSecureConnWanted, jetstream.ErrJetStreamNotEnabled, jetstream.ErrJetStreamNotEnabledForAccount,
		session.ErrDenied, streams.ErrSettings, streams.ErrMissing, session.ErrTooOld, errFile,
		// The server ends a connection right after the handshake if it does not accept the certificate: in TLS 1.3 it sees that last (RFC 8446, section
		// 4.4.2.4). Its alert is lost if the client writes first.
		natsclient.ErrTLS,
	} {
		if errors.Is(err, lasting) {
			return true
		}
	}
	if api, refused := refusal(err); refused && (api.Code == badRequest || api.ErrorCode == codeOneServer) {
		return api.ErrorCode != codeFewServers
	}
	return messaging.IsPermanent(err) || adapters.IsTLSFault(err)
}

// away returns err as a [messaging.ErrBrokerDown] if another try can mend it.
func away(call string, err error) error {
	switch {
	case err == nil:
		return nil
	case lasts(err), errors.Is(err, messaging.ErrBrokerDown):
		return fmt.Errorf("nats: %s: %w", call, err)
	default:
		return fmt.Errorf("%w: nats: %s: %w", messaging.ErrBrokerDown, call, err)
	}
}
