package idempotency

import "errors"

var (
	// ErrInProgress means that another request has the key: its transaction is open, or it has claimed it, see [InProgressError].
	// Its outcome is not known yet: try again in a moment.
	ErrInProgress = errors.New("idempotency: another request with this key is in progress")
	// ErrMismatch means that the key was completed, or claimed, for a request with another fingerprint.
	ErrMismatch = errors.New("idempotency: the key was used for another request")
	// ErrNoPrincipal means that nobody said whose key it is. Answers would be shared by all clients that send that key;
	// where this is wanted, use [Anonymous].
	ErrNoPrincipal = errors.New("idempotency: the scope has no principal: set Scope.Principal, or use Anonymous on purpose")
)

// ScopeError says which part of a scope was refused. Its text does not repeat the refused value.
type ScopeError struct {
	// Field is the field of [Scope]: "Tenant", for example.
	Field string
	// Reason is what is wrong with it.
	Reason string
}

func (e *ScopeError) Error() string { return "idempotency: Scope." + e.Field + " " + e.Reason }
