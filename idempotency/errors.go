package idempotency

import "errors"

var (
	// ErrInProgress means that another request has the key: its transaction is open, or it has claimed it, see [InProgressError].
	// Its outcome is not known yet: try again in a moment.
	ErrInProgress = errors.New("idempotency: another request with this key is in progress")
	// ErrMismatch means that the key was completed, or claimed, for a request with another fingerprint.
	ErrMismatch = errors.New("idempotency: the key was used for another request")
	// ErrNoPrincipal means that the scope has no principal and is not anonymous. All clients that send the same key would share the answer; if you
	// want this, use [Anonymous].
	ErrNoPrincipal = errors.New("idempotency: the scope has no principal: set Scope.Principal, or use Anonymous on purpose")
)

// ScopeError says which part of a scope was refused. Its text does not repeat the refused value.
type ScopeError struct {
	// Field is the field of [Scope]: "Tenant", for example.
	Field string
	// Reason says why the value is refused.
	Reason string
}

func (e *ScopeError) Error() string { return "idempotency: Scope." + e.Field + " " + e.Reason }
