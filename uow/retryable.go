package uow

import (
	"errors"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// retryable tells whether the transaction failed because of others, so that the same function may succeed now.
func retryable(err error) bool {
	switch pgsql.Code(err) {
	case pgsql.CodeSerialization, pgsql.CodeDeadlock:
		return true
	}
	return errors.Is(err, ErrConflict)
}

// Retryable returns the latest error of an inner Do for which an outermost one would run its function again: a
// deadlock, a serialization failure or [ErrConflict]. nil if there was none. Code that turns errors into something
// else, as an HTTP handler does, hides them from the Do around it; that Do's function can ask here and return the
// error, to be run again.
func (u *Unit) Retryable() error {
	if err := u.root.hidden.Load(); err != nil {
		return *err
	}
	return nil
}

// note remembers an error that code between an inner and an outer Do may hide.
func (r *root) note(err error) {
	if retryable(err) {
		r.hidden.Store(&err)
	}
}
