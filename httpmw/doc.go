// Package httpmw joins HTTP handlers to the unit of work. Its middlewares have the form func(http.Handler) http.Handler, so they work with net/http,
// chi, and every router that takes such functions. Each middleware can be used alone.
//
//   - [Idempotency] executes a request once, however often it is sent, and gives every retry the same answer
//   - [UnitOfWork] runs a handler in a transaction
//   - [Transport], for the client side, adds an Idempotency-Key to the requests of a handler, which is the same when the handler is run again
//   - [Authenticate] finds out who sends a request, and [BearerTokens] finds it by a token
//   - [Tenant] and [Metadata] put values into the context that the events then carry
//
// A handler works in the transaction of its middleware: through uow.MustFromContext(r.Context()), units.Do or units.DB. Package httpjson makes one of a
// function that takes and returns JSON.
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
// Mount [Idempotency] after authentication, limits, [Tenant] and [Metadata], and outside of [UnitOfWork]. docs/http.md has the reasons, and the
// details: which answers are kept, lease mode, and when two requests are the same. Package policy documents the rules for clients.
//
// # Guarantees
//
// One request with a key is one transaction: a lock on the key, the look-up, the handler, the answer, COMMIT. The answer is sent after COMMIT. So a
// crash leaves either nothing, or both the work and the answer, which the next retry gets.
//
// An answer below 400 commits the work and is stored with it. An answer of 400 or more rolls the work back. It is stored if the same request would
// get the same answer again. Otherwise the key is free. A handler may run more than once, but a run that was not committed leaves nothing in the
// database. A handler that calls other services uses a [Transport], or IdempotencyConfig.Lease, which holds a lease of the key instead of a
// transaction. The answer is in memory until COMMIT, so Flush, Hijack and trailers do not work.
//
// # Errors
//
// Refusals are application/problem+json (RFC 9457), or application/json if the client accepts nothing else. Their type never changes and is relative to
// IdempotencyConfig.ProblemBase. The member retryable says that the same request with the same key may succeed. A service whose errors have another
// format sets a function that writes them: IdempotencyConfig.Refuse, [WithRefuse] and [WithTenantRefuse].
//
//	idempotency-key-missing         400  no key although it is required
//	idempotency-key-invalid         400  malformed, empty, too long or too short, or several header lines
//	idempotency-principal-missing   401  a key, and nobody whose key it is; see IdempotencyConfig.Challenge
//	idempotency-scope-invalid       400  the scope function failed, or returned what cannot be an identifier, or no tenant where one is required
//	idempotency-key-in-progress     409  the first request is not finished; see Retry-After        retryable
//	idempotency-key-not-replayable  410  done, but the answer could not be kept
//	idempotency-key-reused          422  the key was used with another request; see ReusedStatus
//	idempotency-store-unavailable   503  nothing was executed; see Retry-After                     retryable
//	transaction-ended               500  the handler has sent COMMIT or ROLLBACK itself: a part may have been done
//	transaction-failed              503  what was executed was rolled back; see Retry-After        retryable
//	commit-unknown                  503  executed or not: a retry with the same key finds out      retryable
//	idempotency-key-unknown         503  lease mode: a step may have been done or not; nothing runs retryable with LeaseConfig.Recover
//	answer-not-stored               503  lease mode: executed; a retry with the same key goes on    retryable
//	answer-not-held                 500  the handler's answer cannot be held, or there is none; without a lease, it was rolled back
//	request-body-too-large          413  larger than MaxBody
//	request-body-unreadable         400  the body ended before its end                             retryable
//	tenant-invalid                  400  from Tenant: no tenant, or no valid one
//	middleware-misplaced            500  Idempotency is mounted within a transaction, or twice, or outside of Tenant; or somebody has read the body
//
// # Metrics
//
//   - oncebox.idempotency.requests: requests with a key, by outcome: executed (and stored), released (answered, the key
//     is free), replayed, in_progress, mismatch, refused, failed, panicked; in lease mode also lease_lost (executed, and
//     another process decides) and unknown
//
// Read first: idempotency.go:keyed.serve, then once.go:keyed.transact and once.go:keyed.conclude.
package httpmw
