package messagingtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// testResendAfterRefusal publishes a refused message again after it was made smaller, together with the messages that were held back behind it.
func testResendAfterRefusal(s *session) {
	t := s.t
	r := s.subscribe("resend", "")
	msgs := []event.Envelope{s.message("a", 1), s.message("b", 1), s.tooLarge("a", 2), s.message("b", 2), s.message("a", 3), s.message("a", 4)}
	again, err := unconfirmed(msgs, s.attempt(s.ctx, msgs))
	require.NoError(t, err)
	require.Len(t, again, 3)
	again[0].Payload = []byte("smaller")
	s.publish(again...)
	s.publish(s.message("a", 5), s.message("b", 3))
	got := s.receiveDistinct(r, len(msgs)+2)
	requireOrder(t, got)
	s.ack(r, got...)
}

// testResendAfterDeadline publishes with deadlines that are too short, and again whatever was not confirmed. Copies may come twice and late, but the
// first copies are complete and in order.
func testResendAfterDeadline(s *session) {
	const keys, perKey, perCall = 5, 40, 25
	r := s.subscribe("resend", "")
	sent := s.series(keys, perKey)
	limit := time.Duration(0) // the first deadline is over before the call begins
	for rest := sent; len(rest) > 0; {
		n := min(perCall, len(rest))
		ctx, cancel := context.WithTimeout(s.ctx, limit)
		err := s.attempt(ctx, rest[:n])
		cancel()
		require.NoError(s.t, s.ctx.Err(), "not all messages could be published")
		again, broken := unconfirmed(rest[:n], err)
		require.NoError(s.t, broken)
		rest = append(again, rest[n:]...)
		if err == nil {
			limit /= 2
		} else {
			limit += limit/2 + time.Millisecond
		}
	}
	requireOrder(s.t, s.receiveThese(r, sent, nil))
}

// pause is the time between two calls: a broker that is away does not come back at once.
const pause = 10 * time.Millisecond

// insist publishes until all messages are confirmed, and sends those without a confirmation again in their order, as a relay does. It returns an
// error that an outage does not explain.
func (s *session) insist(msgs []event.Envelope) error {
	const perCall = 20
	for len(msgs) > 0 {
		if err := s.ctx.Err(); err != nil {
			return fmt.Errorf("%d messages could not be published: %w", len(msgs), err)
		}
		n := min(perCall, len(msgs))
		ctx, cancel := context.WithTimeout(s.ctx, s.h.Patience/10)
		err := s.broker.Publish(ctx, msgs[:n])
		cancel()
		again, broken := unconfirmed(msgs[:n], err)
		if broken != nil {
			return broken
		}
		if messaging.IsPermanent(err) || len(again) > 0 && !isOutage(err) {
			return fmt.Errorf("a lost connection counts as the message's fault: %w", err)
		}
		if len(again) > 0 {
			<-time.After(pause)
		}
		msgs = append(again, msgs[n:]...)
	}
	return nil
}

func isOutage(err error) bool {
	partial, ok := errors.AsType[*messaging.PublishError](err)
	if !ok {
		return errors.Is(err, messaging.ErrUnknown) || errors.Is(err, messaging.ErrBrokerDown)
	}
	for _, e := range partial.Failed {
		if !errors.Is(e, messaging.ErrUnknown) && !errors.Is(e, messaging.ErrBrokerDown) && !errors.Is(e, messaging.ErrBehind) {
			return false
		}
	}
	return true
}

// unconfirmed returns the messages that err does not confirm. It returns an error if err breaks the rules of messaging.Publisher: err must name
// messages of the call, confirm a prefix of each key, and hold a message back only behind a failed one of its key.
func unconfirmed(msgs []event.Envelope, err error) (again []event.Envelope, broken error) {
	if err == nil {
		return nil, nil
	}
	partial, ok := errors.AsType[*messaging.PublishError](err)
	if !ok {
		return append(again, msgs...), nil
	}
	stuck := map[string]bool{}
	for i, m := range msgs {
		reason, failed := partial.Failed[i]
		switch {
		case !failed && stuck[m.RoutingKey]:
			return nil, fmt.Errorf("number %d of key %q is confirmed behind a message that is not: %w", m.Sequence, m.RoutingKey, err)
		case failed && reason == nil:
			return nil, fmt.Errorf("number %d of key %q failed without a reason", m.Sequence, m.RoutingKey)
		case failed && !stuck[m.RoutingKey] && errors.Is(reason, messaging.ErrBehind):
			return nil, fmt.Errorf("number %d of key %q is behind nothing: %w", m.Sequence, m.RoutingKey, err)
		case failed:
			again = append(again, m)
			stuck[m.RoutingKey] = m.RoutingKey != ""
		}
	}
	if len(again) == 0 || len(again) < len(partial.Failed) {
		return nil, fmt.Errorf("the error names %d messages, %d of them are of the call", len(partial.Failed), len(again))
	}
	return again, nil
}
