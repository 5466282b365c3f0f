package messaging

import (
	"errors"
	"fmt"
)

// UnreadableKey is the key of the metadata under which an adapter says why a message is not what was sent: it is encrypted, too
// large, or a part of it is missing. [Router] and package inbox call no handler for such a message; inbox makes a dead letter of
// it, which stays one when it is replayed. Other handlers ask [Unreadable].
const UnreadableKey = "oncebox-unreadable"

// ErrUnreadable is matched by what [Unreadable] returns.
var ErrUnreadable = errors.New("messaging: the message cannot be read")

// Unreadable returns a permanent error if m is not what was sent, and nil otherwise.
func Unreadable(m *Message) error {
	reason, unreadable := m.Metadata[UnreadableKey]
	if !unreadable {
		return nil
	}
	return Permanent(fmt.Errorf("%w: %.500s", ErrUnreadable, reason))
}

type leftError struct{ err error }

func (e *leftError) Error() string { return e.err.Error() }
func (e *leftError) Unwrap() error { return e.err }

// LeaveAtBroker marks err as that of a message that can be neither handled nor stored. The [Consumer] neither acknowledges it nor
// tries it again, and goes on with what is behind it: the broker keeps it, and delivers it again after the next connection.
// LeaveAtBroker(nil) is nil.
func LeaveAtBroker(err error) error {
	if err == nil {
		return nil
	}
	return &leftError{err}
}

// IsLeft tells whether err, or an error it wraps, was marked by [LeaveAtBroker].
func IsLeft(err error) bool {
	_, left := errors.AsType[*leftError](err)
	return left
}
