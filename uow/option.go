package uow

import "database/sql"

type options struct {
	tx       sql.TxOptions
	attempts int
}

// Option changes one call of [Manager.Do].
type Option func(*options)

// WithIsolation sets the isolation level. Default: the server's, READ COMMITTED unless changed there.
func WithIsolation(level sql.IsolationLevel) Option {
	return func(o *options) { o.tx.Isolation = level }
}

// WithReadOnly begins a transaction that may not write.
func WithReadOnly() Option { return func(o *options) { o.tx.ReadOnly = true } }

// WithoutRetry runs the function once, whatever becomes of it.
func WithoutRetry() Option { return func(o *options) { o.attempts = 1 } }
