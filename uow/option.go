package uow

import "database/sql"

type options struct {
	tx       sql.TxOptions
	attempts int
	token    *Token
	// innerRules: see WithInnerRules.
	innerRules bool
	// ping: the connection has to be one that answers.
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

// WithInnerRules is for a unit around code that has units of its own and answers for what they return, as a middleware begins one
// around a handler. Where one of those ends that would be outermost by itself, the functions given to [On] are called, and it
// fails with [ErrStale], [ErrNoSink] and their errors, as it would without the unit around it. What that unit has got in another
// way is looked at when it ends itself.
func WithInnerRules() Option { return func(o *options) { o.innerRules = true } }

// WithToken has t name the events of the unit, once it is committed. A unit that announced nothing, or that is not
// committed, leaves it as it is, and so does a savepoint: its events are those of the transaction around it. A savepoint is
// also what Do begins in an HTTP handler behind httpmw.Idempotency or httpmw.UnitOfWork: there, IdempotencyConfig.TokenHeader has the
// middleware put the token into the answer.
func WithToken(t *Token) Option { return func(o *options) { o.token = t } }
