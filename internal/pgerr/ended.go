package pgerr

import "errors"

// ErrEnded means that a transaction was ended by code other than its owner's: by a statement in it, or in another way.
var ErrEnded = errors.New("uow: the function has ended the transaction itself, and what it wrote before may be committed without its events: " +
	"leave COMMIT and ROLLBACK to the unit. To undo a part of the work, put that part into a Do within the unit. To commit a part on its own, put it into a " +
	"Do with the context of uow.Outside(ctx)")

// EndedError matches [ErrEnded], and identifies the transaction.
type EndedError struct {
	// How describes how the transaction ended, in the words of pgsql.EndedTx.
	How string
	// XID is the id of the transaction, "" if it is unknown.
	XID string
	// Err is the error that its owner would have returned otherwise; nil if it would have succeeded.
	Err error
}

func (e *EndedError) Error() string {
	text := ErrEnded.Error() + " (it was ended by " + e.How + ")"
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Is makes errors.Is(err, [ErrEnded]) true.
func (e *EndedError) Is(target error) bool { return target == ErrEnded }

// Unwrap returns Err.
func (e *EndedError) Unwrap() error { return e.Err }

// UncertainError is the error of a failed transaction on a connection that does not show whether it is still the transaction that its owner began.
type UncertainError struct {
	XID string // id of the transaction that its owner began
	Err error
}

func (e *UncertainError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *UncertainError) Unwrap() error { return e.Err }

// MayHaveCommitted returns the id of a transaction that failed with err, if other code than its owner's may have
// committed a part of it. Otherwise, and if the id is unknown, it returns "".
func MayHaveCommitted(err error) string {
	if ended, ok := errors.AsType[*EndedError](err); ok {
		return ended.XID
	}
	if uncertain, ok := errors.AsType[*UncertainError](err); ok {
		return uncertain.XID
	}
	return ""
}
