package envelope

import "errors"

// outgoingError marks the error of an event that a handler tried to emit.
type outgoingError struct{ err error }

func (e *outgoingError) Error() string { return e.err.Error() }
func (e *outgoingError) Unwrap() error { return e.err }

// IsOutgoing reports whether err is about an event to be emitted, and not about a received message. Some errors, such
// as event.ErrUnknownType, can be about either.
func IsOutgoing(err error) bool {
	_, ok := errors.AsType[*outgoingError](err)
	return ok
}
