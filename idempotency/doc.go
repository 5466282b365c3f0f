// Package idempotency stores the answer to a request under a key, so that retries get the same answer. A key is locked or claimed, looked up,
// compared, completed, and purged. The package knows no HTTP: package httpmw is built on it, and other users only need a key and an answer. A
// command handler needs only [Do].
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
// Of all transactions that begin one key and complete it, only one commits. The others get an error that the key is taken, or the stored answer. This
// has two reasons. [Store.Begin] takes an advisory lock that lasts as long as the transaction, and does not wait for it. A request that does not get
// the lock, and finds no answer, gets [ErrInProgress] at once and holds nothing. The look-up after it is a statement with a snapshot of its own, so
// it sees the answer that the previous holder of the lock committed. For that the transaction must be READ COMMITTED, which is PostgreSQL's default.
// If two transactions hold different locks for one key, as two versions of this package could, the primary key lets only one of them complete.
//
// A crash leaves nothing behind: before COMMIT there is no row and no lock, after it there is the answer.
//
// This is for work in this database. For work that calls other services see Claims below.
//
// A completed row never changes, except that [Store.Erase] removes its answer. It expires by the clock of the database, even if it is purged later. A
// key that has expired is a new key. A completed row always has an answer, or the reason why it has none.
//
// Scopes are separate: the row is found by a hash over tenant, principal, method, path and key, each with its length. The tenant is stored in
// clear, for operators. While the outcome of a [StepOnce] is open, the method and path of its request, [Scope.Caller] and the label of [WithLabel]
// are stored in clear, too, because an operator may have to find out the outcome. Keys and principals are stored and logged as hashes only. The
// hash of tenant and principal is there for [Store.Erase].
//
// # Claims
//
// A call to another service cannot be undone by a rollback, and no transaction should be open during it. So [Store.Claim] first commits that the key
// is being worked on. The answer follows in a statement, or a transaction, of its own.
//
//	c, stored, err := store.Claim(ctx, db, key, fp)
//	if stored != nil || err != nil {
//		return stored, err
//	}
//	err = c.Run(ctx, func(ctx context.Context) error {
//		answer, err = step.Call(ctx, "charge", func(ctx context.Context, key string) (idempotency.Response, error) {
//			return charge(ctx, key)
//		})
//		return err
//	})
//	if err != nil {
//		return nil, errors.Join(err, c.Release(ctx))
//	}
//	return &answer, c.Complete(ctx, db, answer)
//
// A claim has a lease, by the clock of the database, which [Claim.Run] and [Claim.Keep] renew. If several processes claim a key at once, one gets
// it. While the lease is renewed, nobody else can claim the key. When its process dies, another one can claim the key after at most the length of
// the lease. An answer or the result of a step is stored only for the latest owner of the claim, which the same statement checks: a process that
// was suspended and wakes up late changes nothing.
//
// Work under a claim runs at least once. Parts of it can be steps, whose results are stored and survive their process:
//
//   - [StepTx], for work in this database: exactly once, in the transaction of the caller
//   - step.Call, for work elsewhere: repeated only if the process died between the call and the store of its result. The repeated call has the same
//     key, by which the other side recognizes it
//   - [StepOnce], if the other side does not recognize a repeated call: at most once. If the process died in between, the outcome is unknown
//
// A key with a step of unknown outcome is not worked on, and does not expire, until the outcome is found out. A caller that claims the key
// [WithRecovery] finds it out, or an operator, with [Store.Unknown] and [Store.Resolve].
//
// During a deployment one version of a service may use transactions and another one claims for the same key. A transaction that finds a claim, when
// it begins or completes, gets [ErrInProgress], until the key is claimed again and completed, or expires. A claim finds the answer of a
// transaction.
//
// # Errors
//
// [ErrInProgress]: another transaction has the key, or it is claimed, [*InProgressError]. [ErrLeaseLost]: another process may have the claim by
// now. [ErrStepUnknown]: nobody knows whether a step was done. [ErrMismatch]: the key was used for another request. [ErrNoPrincipal]: a scope that
// has no principal and is not anonymous. [*ScopeError]: a part of the scope is missing, too long or not text.
//
// # Metrics
//
//   - oncebox.idempotency.purged: expired keys that were removed
//
// Of all processes that run [Store.Observe], as an App's cleaner does, one shows the gauges oncebox.idempotency.keys (beyond 10,000 an estimate),
// claimed, unknown, oldest_unknown in seconds, and expired, see [Stats].
//
// Read first: claim.go:Store.Claim, then claim_run.go:Claim.Run.
package idempotency
