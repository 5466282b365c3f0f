package inbox

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/messaging"
)

// unstorableError says that PostgreSQL refuses a message for what is in it, and would do so every time.
type unstorableError struct{ err error }

func (e *unstorableError) Error() string { return e.err.Error() }
func (e *unstorableError) Unwrap() error { return e.err }

func isUnstorable(err error) bool {
	_, ok := errors.AsType[*unstorableError](err)
	return ok
}

// refusesContent tells whether the error of a statement is about its arguments. Those are: data exceptions (22), violated
// constraints (23), limits of a row or an index (54), and what triggers raise (P0), see PostgreSQL's error codes, Appendix A; and
// what pgx cannot encode, for which it has no type. All others are about the database, and pass: nothing is lost for a full disk.
func refusesContent(err error) bool {
	if err == nil {
		return false
	}
	switch code := pgsql.Code(err); {
	case code == "":
		return strings.Contains(err.Error(), "failed to encode args")
	case len(code) < 2:
		return false
	default:
		return code[:2] == "22" || code[:2] == "23" || code[:2] == "54" || code[:2] == "P0"
	}
}

// keptPayload is how much of a payload a reduced dead letter has, in bytes.
const keptPayload = 64 << 10

// letter is a message that becomes a dead letter.
type letter struct {
	id      identity
	m       *messaging.Message
	reduced bool // m is not what came
}

// reductions are the forms in which a dead letter is stored, each if the one before was refused: with less of the message, and
// then with ASCII only, under a key of its own.
func reductions(l letter) []letter {
	less := l
	less.m, less.reduced = reduced(l.m), true
	plain := less
	plain.id = l.id.disordered()
	plain.id.key = hashed(l.id.tenant, l.id.source, l.id.key.String())
	plain.id.tenant, plain.id.source = ascii(l.id.tenant), ascii(l.id.source)
	plain.m = withoutFields(less.m)
	return []letter{l, less, plain}
}

// reduced returns m with its names, and the beginning of its payload. It says that it is not what came, so that a replay does not
// have it handled.
func reduced(m *messaging.Message) *messaging.Message {
	return messaging.NewMessage(event.Envelope{
		ID: identifier(m.ID), Type: identifier(m.Type), Topic: identifier(m.Topic), AggregateType: identifier(m.AggregateType),
		AggregateID: identifier(m.AggregateID), RoutingKey: identifier(m.RoutingKey), ContentType: identifier(m.ContentType),
		Metadata: event.Metadata{messaging.UnreadableKey: "PostgreSQL refused the message as it came, see the error"},
		Payload:  m.Payload[:min(len(m.Payload), keptPayload)],
	}, m.Attempt, nil)
}

// withoutFields returns a reduced m with as little as a person needs to find the message at the broker.
func withoutFields(m *messaging.Message) *messaging.Message {
	return messaging.NewMessage(event.Envelope{
		ID: ascii(m.ID), Type: ascii(m.Type), Topic: ascii(m.Topic), Metadata: m.Metadata, Payload: []byte{},
	}, m.Attempt, nil)
}

// ascii writes what is no printable ASCII as a question mark.
func ascii(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// refusal is the reason that a reduced letter gives.
func (l letter) refusal(cause, refused error) error {
	if !l.reduced || refused == nil {
		return cause
	}
	return fmt.Errorf("%s (stored without what PostgreSQL refuses: %s)", ascii(cause.Error()), ascii(refused.Error()))
}

// storable returns nil for a time that RFC 3339 cannot write.
func storable(t time.Time) *time.Time {
	if year := t.UTC().Year(); t.IsZero() || year < 0 || year > 9999 {
		return nil
	}
	return &t
}
