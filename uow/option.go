package uow

import "database/sql"

type options struct {
	tx       sql.TxOptions
	attempts int
	token    *Token
	// nestedChecks: see WithNestedChecks.
	nestedChecks bool
	// ping: the connection has to answer.
	ping bool
}

// Option changes one call of [Manager.Do] or [Manager.Begin].
type Option func(*options)

// WithIsolation sets the isolation level. Default: the server's, READ COMMITTED unless changed there.
func WithIsolation(level sql.IsolationLevel) Option {
	return func(o *options) { o.tx.Isolation = level }
}

// WithReadOnly begins a transaction that may not write.
func WithReadOnly() Option { return func(o *options) { o.tx.ReadOnly = true } }

// WithoutRetry runs the function once, whatever becomes of it.
func WithoutRetry() Option { return func(o *options) { o.attempts = 1 } }

// WithNestedChecks is for a middleware: a unit around a handler that has units of its own. A unit directly within it is checked as an
// outermost one when it ends: the functions given to [On] are called, and it fails with [ErrStale], [ErrNoSink] and their errors.
// What the middleware's unit has got in another way is checked when it ends itself.
func WithNestedChecks() Option { return func(o *options) { o.nestedChecks = true } }

// WithToken has t name the events of the unit, once it is committed. A unit that announced nothing, or that is not
// committed, leaves it as it is, and so does a savepoint: its events are those of the transaction around it. A savepoint is
// also what Do begins in an HTTP handler behind httpmw.Idempotency or httpmw.UnitOfWork: there, IdempotencyConfig.TokenHeader has the
// middleware put the token into the answer.
func WithToken(t *Token) Option { return func(o *options) { o.token = t } }
