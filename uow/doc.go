// Package uow is the unit of work: one PostgreSQL transaction, the aggregates that changed in it, and their events. The unit hands the events to
// the sinks, whose statements are the last ones before COMMIT.
//
//	err := units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
//		order := PlaceOrder(id, items)
//		return u.Save(ctx, order)
//	})
//
// Send the statements of a unit to [Unit.SQL], a *sql.Tx, to [Unit.Pgx], a pgx.Tx, or to [Unit.DB], a bun.IDB: all three are the same transaction.
// Code that has only a context, such as a handler of httpmw or inbox, gets its unit from [MustFromContext]. A statement that is sent to the pool
// instead is not part of the unit. It stays committed even if the unit rolls back, and is executed again when the unit is run again. Set
// config.Config.RefusePool to find such statements: they then fail with [ErrPool]. Use [Outside] for statements that are meant to go to the pool.
//
// [Unit.Save] stores aggregates that are bun models under an optimistic lock, and emits their events. Use [Unit.Track] for aggregates that are
// stored in another way.
//
// A Do inside a Do is a savepoint with aggregates, events and hooks of its own. When the inner Do succeeds, they are merged into the outer unit.
// When it fails, they are dropped.
//
// # Guarantees
//
// Data and events commit together or not at all. The events of an aggregate are cleared after COMMIT and never before, so nothing is lost when
// COMMIT fails. If code ignored the error of a statement, PostgreSQL would answer COMMIT with a rollback, without an error. So the unit checks
// before COMMIT that its transaction is alive (with a statement, if it does not know the id of the transaction), and checks the answer to COMMIT.
//
// Leave COMMIT and ROLLBACK to the unit. If a function ends the transaction by a statement, through whatever handle, its unit fails with
// [ErrTransactionEnded]. What the function has committed stays, the events are not stored, and the function is not run again. On connections of
// config.OpenDB the statements after it are refused. The function may use savepoints of its own.
//
// A function is run again, in a new transaction, in four cases: PostgreSQL chose it as the victim of a deadlock or of a serialization failure, a
// statement had been prepared before its table was changed, the function returned [ErrConflict], or the connection was lost before COMMIT. So it must
// load or make its aggregates itself: an instance that an earlier try has tracked cannot be tracked again ([ErrStale]). On connections of
// config.OpenDB the function is run again even if it ignored the error of the statement.
//
// The versions of an aggregate's events follow one another without a gap within a unit. The functions of [On] are called for the events within the
// unit, before the flush, until they have seen every event. Behind a middleware of httpmw they are called at the end of each outermost Do of the
// HTTP handler, which answers for the errors that they return.
//
// The caller's context is checked just before COMMIT and never cancels COMMIT itself. If the flush and COMMIT share a round trip, the caller can
// still cancel while the flush waits for a lock. The server then decides which of the two was faster. When a function panics, or ends by
// runtime.Goexit, the unit is rolled back. A panic after COMMIT is logged, because the unit is committed. [Manager.Begin] is for code that cannot put
// its work into a function.
//
// Statements of a unit may come from several goroutines, as long as these end before the function returns. Savepoints may not: they have to be
// nested in one another, and a unit fails if units within it run at the same time.
//
// # Once per cause, and reading one's own writes
//
// A producer that may run twice for one cause gives the cause a key with [event.WithDedupKey]: the second event with the same key is not stored.
//
// Read models are updated after COMMIT. To wait for one, let Do return a token of the unit's events ([WithToken]) and pass it to inbox.Inbox.Await,
// which waits, with a bound, until a consumer has handled them. Behind httpmw.Idempotency, IdempotencyConfig.TokenHeader puts the token into the
// answer. Use [Unit.Token] for an answer that is stored in the unit itself.
//
// # Several databases
//
// Each database has one Manager, and each unit is a transaction of one database. A unit that begins within a unit of another database is a
// transaction of its own. It commits first, stays when the outer unit is rolled back, and is done again when the outer function is run again. If both
// databases have to change exactly once, emit an event in one unit, and change the other database in a handler of that event. [Manager.DB] and
// [Manager.Do] find the unit of their own database in the context, however the units are nested. A second Manager of the same database is refused
// within a unit of the first. That also works through another pool of connections if the server shows both sessions: it hides sessions of other
// roles.
//
// # Errors
//
// COMMIT has three outcomes: committed, rolled back, unknown. When its answer is lost, the unit asks the server what became of the transaction,
// ends the transaction if it hangs, and then returns success or failure as if the answer had arrived. After a crash or a failover of the server the
// id of a transaction proves nothing. Then the unit looks for a row that it has written: an event ([FindSink]), the entry of a message, or the
// answer under an idempotency key. If it has written none of these, Do returns a [*CommitUnknownError]. With a synchronous standby, Do returns
// success only after the standby has confirmed. [ErrConnectionLost]: nothing was stored. [ErrNoSink]: the unit has events, and the manager has no
// sink. [ErrConflict] and [*ConflictError]: an aggregate was changed by somebody else. [ErrStale]: an aggregate lived through a rollback and must
// be loaded again.
//
// # Metrics
//
//   - oncebox.uow.units: units that ended, by outcome (committed, rolled_back, unknown)
//   - oncebox.uow.retries: functions that were run again
//
// Read first: do.go:Manager.Do, save.go:Unit.Save, then commit.go:level.finish.
package uow
