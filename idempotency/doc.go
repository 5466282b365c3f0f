// Package idempotency keeps the answers that retries of a request get. It is the life of one key: locked, looked up,
// compared, completed in the transaction of the work, purged. It knows no HTTP; package httpmw is built on it, and so can
// be anything else that has a key and an answer.
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
// transaction and never waits for it: whoever does not get it is told [ErrInProgress] at once and holds nothing. The
// look-up that follows is a statement with a snapshot of its own, so it sees what the previous holder of the lock
// committed; the transaction must be READ COMMITTED for that, which is PostgreSQL's default. Should two transactions
// hold different locks for one key nevertheless, as two versions of this package could, the primary key lets only one
// of them complete.
//
// A crash leaves nothing behind: before COMMIT there is no row and no lock, after it there is the answer.
//
// A completed row never changes. It answers until it expires, by the clock of the database, whether or not it was
// purged by then; a key that has expired is a new key. A row that is completed and has no answer cannot exist.
//
// Scopes never meet: the row is found by a hash over tenant, principal, method, path and key, each with its length. Only
// the tenant is stored in clear, for operators. Keys and principals are neither stored nor logged except as this hash.
//
// # Errors
//
// [ErrInProgress]: another transaction has the key. [ErrMismatch]: the key was completed for another request.
// [ErrNoPrincipal]: a scope without a principal that does not say that it is anonymous. [*ScopeError]: a part of the
// scope is missing, too long or not text.
//
// # Metrics
//
//   - oncebox.idempotency.purged: expired keys that were removed
package idempotency
