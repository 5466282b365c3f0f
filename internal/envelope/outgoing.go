package envelope

import "errors"

// outgoingError marks the error of an event that cannot be emitted.
type outgoingError struct{ err error }

func (e *outgoingError) Error() string { return e.err.Error() }
func (e *outgoingError) Unwrap() error { return e.err }

// IsOutgoing reports whether err is about an event that was to be emitted, and not about a message that was received: event.ErrUnknownType may be
// either.
func IsOutgoing(err error) bool {
	_, ok := errors.AsType[*outgoingError](err)
	return ok
}
