// Package uow is the unit of work: one PostgreSQL transaction, the aggregates that changed in it, and their events,
// which are handed to the sinks as the last statement before COMMIT.
//
//	err := units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
//		order := PlaceOrder(id, items)
//		return u.Save(ctx, order)
//	})
//
// The statements of a unit are given to [Unit.SQL], a *sql.Tx, to [Unit.Pgx], a pgx.Tx, or to [Unit.DB], a bun.IDB: all three are the same
// transaction. Code that has only a context, as the handlers of httpmw and inbox have, gets its unit by [FromContext].
// What is sent to the pool instead is committed by itself, whatever becomes of the unit, and is done again when the unit is. Nothing tells
// that unless config.Config.RefusePool is set: then such a statement fails with [ErrPool]. [Outside] is for those that are meant.
//
// [Unit.Save] is for aggregates that are bun models: it stores them under an optimistic lock. What is stored in another
// way is announced with [Unit.Track].
//
// A Do inside a Do is a savepoint with tracked aggregates, events and hooks of its own: they are merged into the outer
// unit when the inner one succeeds and dropped when it fails.
//
// # Guarantees
//
// Data and events commit together or not at all. The events of an aggregate are cleared after COMMIT and never before,
// so nothing is lost when COMMIT fails. Where code swallowed the error of a statement, PostgreSQL would answer COMMIT
// with a rollback and say nothing; the unit looks whether its transaction is alive before COMMIT, with a statement where it does not
// know its id, and at what COMMIT was answered.
//
// COMMIT and ROLLBACK are the unit's. A function that ends the transaction by a statement, through whatever handle, has its unit fail with
// [ErrTransactionEnded]: what it has committed stays, the events are not stored, and it is not run again. Statements that follow are refused, on
// connections of config.OpenDB. Savepoints of its own are allowed.
//
// A function is run again, in a new transaction, when PostgreSQL chose it as the victim of a deadlock or of a
// serialization failure, when a statement had been prepared before its table was changed, when it reported [ErrConflict], or when the connection was lost
// before COMMIT. It must therefore
// load or make its aggregates itself; tracking an instance again that an earlier try had tracked is [ErrStale]. On connections of
// config.OpenDB that is so as well when the function swallowed the error of the statement.
//
// The versions of an aggregate's events follow one another without a gap within a unit. Functions that were given to [On]
// are called for the events within the unit, before the flush, until there are none that they have not seen. Behind a middleware
// of httpmw that is at the end of each outermost Do of the HTTP handler, which answers for what they return.
//
// The caller's context is looked at just before COMMIT and never cancels COMMIT itself. Where the flush and COMMIT share
// a round trip, the caller can still give up while the flush waits for a lock; the server then says which of the two
// was faster. A function that panics, or leaves by runtime.Goexit, is rolled back; what panics after COMMIT is logged,
// because the unit is committed. [Manager.Begin] is for code that cannot put its work into a function.
//
// Statements of a unit may come from several goroutines, as long as these end before the function returns. Savepoints
// may not: they have to be nested in one another, and units within one unit that run at the same time fail it.
//
// # Once per cause, and reading one's own writes
//
// A producer that may run twice for one cause names it with [event.WithDedupKey]: the second event is a no-op.
//
// Read models come later than COMMIT. [WithToken] has Do return what the unit announced, and inbox.Inbox.Await waits, with a
// bound, until a consumer has handled it. Behind httpmw.Idempotency its IdempotencyConfig.TokenHeader does that for the answer, and
// [Unit.Token] for an answer that is stored in the unit itself.
//
// # Several databases
//
// Each database has one Manager, and each unit is a transaction of one database. A unit that is begun within that of another
// database is a transaction of its own: it commits before the one around it, stays when that one is rolled back, and is done
// again when that one's function is run again. What has to happen in both exactly once is an event of the one unit that a handler
// of the other takes. [Manager.DB] and [Manager.Do] find the unit of their own database in the context, however the units are
// nested. A second Manager on a database is refused within a unit of the first, also through another pool of connections,
// where the server shows both sessions: it hides those of other roles.
//
// # Errors
//
// COMMIT has three outcomes. When its answer is lost, the unit asks the server what became of the transaction, and ends it
// if it hangs, and reports success or failure as if nothing had been lost. After a crash of the server, or where another one has
// taken over, the id of a transaction tells nothing, and a row has to: an event ([FindSink]), the entry of a message, or the answer
// under an idempotency key. Without one the error is a [*CommitUnknownError]. Where a synchronous standby is waited for, nothing is a
// success before it confirmed.
// [ErrConnectionLost]: nothing was stored.
// [ErrNoSink]: there are events and nobody takes them. [ErrConflict] and [*ConflictError]: an aggregate was changed by
// somebody else. [ErrStale]: an aggregate lived through a rollback and must be loaded again.
//
// # Metrics
//
//   - oncebox.uow.units: units that ended, by outcome (committed, rolled_back, unknown)
//   - oncebox.uow.retries: functions that were run again
package uow
