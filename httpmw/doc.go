// Package httpmw joins HTTP handlers to the unit of work: middlewares of the form func(http.Handler) http.Handler, for
// net/http, chi, and every router that takes them. Each can be used alone.
//
//   - [Idempotency] executes a request once, however often it is sent, and gives every retry the same answer
//   - [UnitOfWork] runs a handler in a transaction
//   - [Tenant] and [Metadata] put into the context what events are to carry
//
// A handler needs no change to run under them. What it does through units.Do, or through units.DB(r.Context()), becomes
// part of the middleware's transaction: its rows, its events, its hooks after COMMIT.
//
//	units, keys := uow.New(db, nil), idempotency.NewStore(nil)
//	once := httpmw.Idempotency(units, keys, func(r *http.Request) (idempotency.Scope, error) {
//		return idempotency.Scope{Tenant: tenantOf(r), Principal: userOf(r)}, nil
//	}, &httpmw.IdempotencyConfig{Required: true})
//
//	r := chi.NewRouter()
//	r.Use(authenticate, rateLimit)
//	r.With(once).Post("/payments", pay)
//
// # Where to mount
//
// After all that may refuse a request, so that replays are refused as well: authentication, authorisation, limits. After
// [Tenant] and [Metadata]. Outside (before) anything that opens a transaction, above all [UnitOfWork]: an answer is sent
// when Idempotency's transaction is committed, and within another one it would not be. Outside http.StripPrefix, because
// the path is part of the scope. Inside (after) compression, or the compressed bytes of the first answer are replayed to
// clients that do not accept them. Inside a recoverer: a panic rolls back and goes on.
//
// Both r.Use and r.With of chi are right; so is wrapping a http.ServeMux or one of its handlers.
//
// # Guarantees
//
// One request with a key is one transaction: a lock on the key, the look-up, the handler, the answer, COMMIT. The answer
// is sent after COMMIT and never before, so a crash in between leaves either nothing or both the work and the answer
// that the next retry gets. No connection to the database is held while a body is read or an answer is written.
//
// An answer below 400 commits the work and is stored with it. An answer from 400 on drops the work: SQL, events and hooks.
// If it would be the same next time, it is stored nevertheless; 401, 403, 408, 409, 425, 429 and all from 500 on free the
// key, so that a retry is executed. A handler that answers 2xx although one of its statements failed has its work rolled
// back and is answered 503. A panic rolls back, frees the key, and goes on.
//
// When PostgreSQL chose the work as the victim of a deadlock or of a serialization failure, or an aggregate was changed by
// somebody else, the handler is run again with the same request in a new transaction. This needs the error to pass a
// units.Do, of the handler or of the middleware; what a handler does to the outside it may do again.
//
// A client that goes away does not stop the work: the handler's context is not cancelled with the connection, and has a
// timeout of its own.
//
// A replay has the status and the body of the first answer, byte for byte, those of its headers that are listed in
// [StoredHeaders] or configured, and Idempotent-Replayed: true.
//
// # The answer is held
//
// Until COMMIT the answer is in memory, up to IdempotencyConfig.MaxHeld. So there is no Flush, no Hijack, no server-sent
// events and no trailers under these middlewares; http.ResponseController reports http.ErrNotSupported, its deadlines work.
// An answer that cannot be held is 500 and nothing is committed. One that is larger than IdempotencyConfig.MaxAnswer goes
// to the first client in full and is stored without its body; retries are told so, with 410, and execute nothing.
//
// # Errors
//
// Refusals are application/problem+json (RFC 9457) with a stable type, relative to IdempotencyConfig.ProblemBase, and the
// member retryable, which says whether the same request with the same key may succeed.
//
//	idempotency-key-missing         400  no key although it is required
//	idempotency-key-invalid         400  malformed, empty, longer than 255, or several header lines
//	idempotency-principal-missing   401  a key, and nobody whose key it is
//	idempotency-scope-invalid       400  the scope function failed, or returned what cannot be an identifier
//	idempotency-key-in-progress     409  the first request is not finished; see Retry-After        retryable
//	idempotency-key-not-replayable  410  done, but the answer was too large to keep
//	idempotency-key-reused          422  the key was used with another request
//	idempotency-store-unavailable   503  nothing was executed; see Retry-After                     retryable
//	transaction-failed              503  what was executed was rolled back; see Retry-After        retryable
//	commit-unknown                  503  executed or not: a retry with the same key finds out      retryable
//	answer-not-held                 500  the handler's answer cannot be held; it was rolled back
//	request-body-too-large          413  larger than MaxBody
//	request-body-unreadable         400  the body ended before its end                             retryable
//	tenant-invalid                  400  from Tenant
//	middleware-misplaced            500  Idempotency is mounted within a transaction
//
// # Metrics
//
//   - oncebox.idempotency.requests: requests with a key, by outcome: executed (and stored), released (answered, the key
//     is free), replayed, in_progress, mismatch, refused, failed, panicked
package httpmw
