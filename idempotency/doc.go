// Package idempotency keeps the answers that retries of a request get. It is the life of one key: locked or claimed,
// looked up, compared, completed, purged. It knows no HTTP; package httpmw is built on it, and so can
// be anything else that has a key and an answer; [Do] is all that a command handler needs.
//
//	key, err := store.Key(idempotency.Scope{Tenant: "acme", Principal: "u1", Method: "POST", Path: "/payments", Key: "8e03"})
//	fp := idempotency.NewFingerprint("payments-1", body)
//	err = units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
//		stored, err := store.Begin(ctx, u.DB(), key, fp)
//		if stored != nil || err != nil {
//			return err // answered before, or ErrInProgress, or ErrMismatch
//		}
//		answer, err := pay(ctx, u)
//		if err != nil {
//			return err // the rollback frees the key
//		}
//		return store.Complete(ctx, u.DB(), key, fp, answer)
//	})
//
// # Guarantees
//
// Of all transactions that begin one key and complete it, one commits; the others learn that the key is taken, or get
// the answer that was stored. This rests on two things. [Store.Begin] takes an advisory lock that lasts as long as the
// transaction and never waits for it: a request that does not get it, and finds no answer, is told [ErrInProgress] at once and
// holds nothing. The look-up that follows is a statement with a snapshot of its own, so it sees what the previous holder of
// the lock committed; the transaction must be READ COMMITTED for that, which is PostgreSQL's default. Should two transactions
// hold different locks for one key nevertheless, as two versions of this package could, the primary key lets only one
// of them complete.
//
// A crash leaves nothing behind: before COMMIT there is no row and no lock, after it there is the answer.
//
// That is for work in this database. For work that calls outside see Claims below.
//
// A completed row never changes, except that [Store.Erase] removes its answer. It answers until it expires, by the clock of the
// database, whether or not it was purged by then; a key that has expired is a new key. A row that is completed and has neither an answer
// nor a reason why cannot exist.
//
// Scopes never meet: the row is found by a hash over tenant, principal, method, path and key, each with its length. The tenant is stored in
// clear, for operators. While the outcome of a [StepOnce] is open, because somebody may have to find it out, so are method and path of its request,
// and what the service says for that purpose: [Scope.Caller] and [WithLabel].
// Keys and principals are stored and logged as hashes only. The hash of tenant and principal is there for [Store.Erase].
//
// # Claims
//
// Work that calls outside cannot be undone by a transaction, and none should be open meanwhile. [Store.Claim] commits first that
// the key is being worked on; the answer follows in a statement, or a transaction, of its own.
//
//	c, stored, err := store.Claim(ctx, db, key, fp)
//	if stored != nil || err != nil {
//		return stored, err
//	}
//	err = c.Run(ctx, func(ctx context.Context) error {
//		answer, err = idempotency.Step(ctx, "charge", func(ctx context.Context, key string) (idempotency.Response, error) {
//			return charge(ctx, key)
//		})
//		return err
//	})
//	if err != nil {
//		return nil, errors.Join(err, c.Release(ctx))
//	}
//	return &answer, c.Complete(ctx, db, answer)
//
// A claim has a lease, by the clock of the database, which [Claim.Run] and [Claim.Keep] renew. If several claim a key at once, one gets it. When its
// process dies, the key is claimed by the next one after at most the length of the lease, and by nobody while it is renewed. What is
// written under a claim, an answer or the result of a step, is refused to all but its latest owner, in the same statement:
// a process that was suspended and wakes up late changes nothing.
//
// What is done under a claim runs at least once. Parts of it are steps, whose results are stored and survive their process:
//
//   - [StepTx], for what is done in this database: exactly once, in the transaction of the caller
//   - [Step], for what is done elsewhere: repeated only if the process died between the call and the store of its result, with the
//     same key, by which the other side can tell
//   - [StepOnce], where the other side cannot tell: at most once. If the process died in between, the outcome is unknown
//
// No process works on a key with a step of unknown outcome, and the key does not expire, until the outcome was found out: by the caller
// that claims it [WithRecovery], or by an operator, with [Store.Unknown] and [Store.Resolve].
//
// The two ways can meet on one key, while a service is deployed. A transaction then finds the claim, when it begins or when it
// completes, and is told [ErrInProgress], until the key is claimed again and completed, or expires; a claim finds the answer.
//
// # Errors
//
// [ErrInProgress]: another transaction has the key, or it is claimed, [*InProgressError]. [ErrLeaseLost]: the claim may be another's
// by now. [ErrStepUnknown]: nobody knows whether a step was done. [ErrMismatch]: the key is another request's.
// [ErrNoPrincipal]: a scope without a principal that does not say that it is anonymous. [*ScopeError]: a part of the
// scope is missing, too long or not text.
//
// # Metrics
//
//   - oncebox.idempotency.purged: expired keys that were removed
//
// and, shown by one process of all that run [Store.Observe], as an App's cleaner does: the gauges oncebox.idempotency.keys (beyond 10,000 an estimate),
// claimed, unknown, oldest_unknown in seconds, and expired, see [Stats].
package idempotency
