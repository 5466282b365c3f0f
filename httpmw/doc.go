// Package httpmw joins HTTP handlers to the unit of work: middlewares of the form func(http.Handler) http.Handler, for
// net/http, chi, and every router that takes them; docs/other-routers.md has the way for Echo, gin,
// Fiber and others. Each can be used alone. A handler under [Idempotency] or [UnitOfWork] must do its work
// in the transaction of the middleware: through uow.FromContext(r.Context()), units.Do or units.DB. What it does through a
// pool of its own is committed by itself: it stays when the request is rolled back, and is done again when the handler is run again.
//
//   - [Idempotency] executes a request once, however often it is sent, and gives every retry the same answer
//   - [UnitOfWork] runs a handler in a transaction
//   - [Policy] tells clients what Idempotency asks and promises, as pages and as OpenAPI
//   - [Transport], for the client side, gives a handler's own requests keys that a re-run repeats
//   - [Tenant] and [Metadata] put into the context what events are to carry
//
// The unit that uow.FromContext returns is a *sql.Tx (Unit.SQL), a pgx.Tx (Unit.Pgx) and a bun.IDB (Unit.DB). What a handler does through
// it or through units.Do is part of the middleware's transaction: its rows, its events, its hooks after COMMIT. Idempotency logs a
// handler that answered below 400 and never asked for its unit, once for each route. What a rule (uow.On) says against them
// comes back from its units.Do, for it to answer.
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
// # Which pool
//
// Take one of config.OpenDB. Another bun.DB over pgx works too, but on one of sql.Open begin and COMMIT may cost round trips of their own, and
// a deadlock or a broken connection is noticed only where its error comes out of a units.Do.
//
// # Where to mount
//
// After all that may refuse a request, so that replays are refused as well: authentication, authorisation, limits. After
// [Tenant] and [Metadata]; a service with tenants sets IdempotencyConfig.RequireTenant. Outside (before) anything that opens a
// transaction, above all [UnitOfWork]: an answer is sent when Idempotency's transaction is committed, and within another one it would
// not be. Outside http.StripPrefix, because the path is part of the scope. Inside (after) compression, or the compressed bytes of the
// first answer are replayed to clients that do not accept them; a Content-Encoding that is set before the handler begins is taken
// for that of such a middleware, and is not stored. Inside a recoverer: a panic rolls back and goes on.
//
// IdempotencyConfig.Timeout bounds the work, so http.TimeoutHandler is not needed. If it is there nevertheless, put it around the whole
// router: the request goes on after it has answered, and a retry gets its answer. Within, around a handler, it answers
// while the handler is still running; that answer drops the transaction, and what the handler does later is outside of it.
//
// Bodies must not have been read before, not even their first bytes, unless they were put back (r.Body =
// io.NopCloser(bytes.NewReader(body))): what nobody can see cannot be compared. Such requests are refused, and the log says why; only
// of a body of chunks nobody can tell. What puts another body in its place, as a decompressor does, has to set r.ContentLength
// as well, to -1 for example. Forms that were parsed before, because they have a token against forgery, are taken as they were
// parsed, except for multipart/form-data.
//
// Both r.Use and r.With of chi are right; so is wrapping a http.ServeMux or one of its handlers. The 404 or 405 of such a router
// that knows no route is not kept, as the next version of the service may have it. With other routers, mount the middleware on
// their routes.
//
// # Guarantees
//
// One request with a key is one transaction: a lock on the key, the look-up, the handler, the answer, COMMIT. The answer
// is sent after COMMIT and never before, so a crash in between leaves either nothing or both the work and the answer
// that the next retry gets. No connection to the database is held while a body is read or an answer is written.
//
// An answer below 400 commits the work and is stored with it. An answer from 400 on drops the work: SQL, events and hooks.
// If it would be the same next time, it is stored nevertheless; 401, 403, 407, 408, 409, 412, 421, 423, 425, 426, 428, 429 and
// all from 500 on free the key, so that a retry is executed. IdempotencyConfig.Keep has it otherwise for a route. A handler that answers 2xx
// although one of its statements failed has its work rolled back and is answered 503. A panic rolls back, frees the key,
// and goes on.
//
// An answer that nobody has written is no success, although net/http takes silence for 200: it is what a failure looks like whose error a
// framework renders further out, after these middlewares. So a handler that has written neither a status nor a body is answered 500,
// answer-not-held, its work is dropped and its key is free, unless IdempotencyConfig.EmptyAnswer or [WithEmptyAnswer] says that silence is meant.
// w.WriteHeader(http.StatusNoContent) is an answer; 1xx is none. What is written when the handler has returned reaches nobody, and is an error in the log,
// once a minute for each route. What it writes past the middleware, to a writer of somebody further out that lets one see that, drops the
// work and cuts the connection, because that answer is on its way. What is only flushed there is seen when the handler has written nothing else.
//
// With IdempotencyConfig.TokenHeader an answer below 400 has the uow.Token of what the request announced. It is made before the answer is
// stored, in the same transaction: the first answer and each replay have the same one.
//
// A refusal that is kept is stored after the work was rolled back, in a transaction of its own, and sent when that is committed. In
// between, the key is free for a moment, and another request with it may run. Whichever commits its answer first has the last word: the
// work of the other cannot be committed any more, and its client is answered the same, or 409 and the same when it comes
// again. If nothing could be stored, the answer is 503. So nobody is told a refusal that is not the last word. A handler that refuses
// may have run more than once; of what it did in the database nothing is left.
//
// When PostgreSQL chose the work as the victim of a deadlock or of a serialization failure, the connection broke, or an aggregate
// was changed by somebody else, the handler is run again with the same request in a new transaction, whatever it has answered,
// unless it has done the failed units.Do again itself, with success. On connections of config.OpenDB no statement escapes this; on
// others the error has to pass a units.Do, or nothing is run again. No answer is stored if its connection broke, or was
// closed because the handler cancelled a statement. What a handler does to the outside it may do again.
//
// A client that goes away does not stop the work: the handler's context is not cancelled with the connection, and has a
// timeout of its own.
//
// The transaction is there until the handler returns. What it has started and not waited for, a goroutine for example, is outside: from then
// on units.DB(ctx) is the pool and units.Do a transaction of its own. The context is cancelled then, but with context.WithoutCancel,
// or a Timeout of -1, they are committed although the request was rolled back, and its retry does the same again. Wait for such work,
// or announce an event and do it in a handler of messages.
//
// A replay has the status and the body of the first answer, byte for byte, those of its headers that are listed in
// [StoredHeaders] or configured, and Idempotent-Replayed: true.
//
// # Requests to other services
//
// What a handler sends elsewhere cannot be rolled back. With a [Transport] in its http.Client it has an Idempotency-Key
// that is the same in every run of the handler and for every retry, so that the other side does it once:
//
//	bank := &http.Client{Transport: &httpmw.Transport{}}
//	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "https://bank.example/charges", body)
//	resp, err := bank.Do(req)
//
// In handlers of messages use &httpmw.Transport{Key: inbox.Key}.
//
// # Lease mode
//
// All of that is for handlers whose work is in the database. A rollback cannot undo what a handler does outside, and such a handler
// should keep no transaction open meanwhile. With IdempotencyConfig.Lease it runs without one, and opens units itself:
//
//	once := httpmw.Idempotency(units, keys, scope, &httpmw.IdempotencyConfig{Lease: &httpmw.LeaseConfig{}})
//
//	charge, err := idempotency.Step(ctx, "charge", func(ctx context.Context, key string) (Charge, error) {
//		return bank.Charge(ctx, key, amount)
//	})
//	err = units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
//		_, err := idempotency.StepTx(ctx, u.DB(), "book", func(ctx context.Context) (int64, error) { return book(ctx, u, charge) })
//		return err
//	})
//
// Before the handler runs, a claim of the key is committed, with a lease that is renewed while it runs; after it, the answer. At
// any moment one process at most has the lease. If that one dies, retries are answered 409 until the lease ends, and the next one
// takes the request over. So the handler runs at least once, and what must not be repeated is a step: package idempotency
// says what [idempotency.Step], [idempotency.StepTx] and [idempotency.StepOnce] promise. A process that lost its lease has the
// context of its handler cancelled with the cause idempotency.ErrLeaseLost; it stores neither steps nor an answer, and its client
// gets 409.
//
// The same answers are stored as in atomic mode, but no answer undoes what the handler has done. What frees the key there ends the
// lease here: the steps that are done stay done, and the key stays that of its request, so that a retry goes on and another
// request is a mismatch. That is true of a panic too. A mismatch is looked for before anything else, also while the key is
// claimed. An answer that cannot be held is replaced by a 410, for the first client as well, because the handler is not to run again.
//
// When the outcome of a StepOnce is unknown, the key is answered 503, idempotency-key-unknown, and nothing runs, until
// LeaseConfig.Recover or an operator (idempotency.Store.Resolve) tells what became of it. An operator sees method and path, and what the service
// says of the step ([idempotency.WithLabel]) and of who asked (idempotency.Scope.Caller).
//
// A handler is not run again after a deadlock or a conflict: its units are. The lease is renewed over a connection of the pool, so
// that pool must have room for more than the handlers take.
//
// # The answer is held
//
// Until COMMIT the answer is in memory, up to IdempotencyConfig.MaxHeld. So there is no Flush, no Hijack, no server-sent
// events and no trailers under these middlewares; http.ResponseController reports http.ErrNotSupported, its deadlines work.
// An answer that cannot be held is 500 and nothing is committed. An answer that is larger than IdempotencyConfig.MaxAnswer goes
// to the first client in full and is stored without its body; retries are told so, with 410, and execute nothing.
//
// # What is one request
//
// A key belongs to tenant, principal, method and path. Under it, a request is the same if query, content type, body and
// preconditions are. Bodies are compared by what they mean. JSON is the same in any spelling, without what IdempotencyConfig.Exclude names; of a
// form the order of different fields makes no difference; a form with files is the same if its parts are, with their names, file names, types and bytes,
// in their order, whatever the boundary; a gzip or deflate body is what is in it, up to MaxBody. Media types are the same in any case, and with
// charset=utf-8 where that is the default. Other bodies, and what cannot be read as what it says it is, are compared byte for byte.
// IdempotencyConfig.Fingerprint decides otherwise for a service. Preconditions are If-Match, If-None-Match and If-Unmodified-Since (RFC 9110, section 13.1). If
// IdempotencyConfig.APIVersion is set, the version has to be the same, too. A deployment that changes this configuration does not
// refuse the retries of what was done before it.
//
// A client that was answered 412 or 428 sends the request with another precondition, under the same key: that key is free. In lease
// mode, where a key stays that of its request, it chooses a new one.
//
// While the first request is in progress, others with its key are answered 409, or wait for its answer, as long as
// IdempotencyConfig.Wait says.
//
// # How much is kept
//
// An answer is kept for idempotency.Config.TTL, 24 hours by default; then its key is a new one. The row stays until it is removed:
// call idempotency.Store.Purge now and then, every hour for example. oncebox.App does; a program that uses this package alone has to. Routes
// with a TTL of their own have a Store of their own, on the same tables; one of them purges for all.
//
// In between the table holds what clients send in a TTL. Nothing here limits how many keys a caller may use: limit requests before this
// middleware, replays included. What one of them can store is at most IdempotencyConfig.MaxAnswer and some headers.
//
// # Errors
//
// Refusals are application/problem+json (RFC 9457), or application/json if the client takes nothing else, with a stable
// type, relative to IdempotencyConfig.ProblemBase, and the member retryable, which says whether the same request with the
// same key may succeed. A [Policy] has a page for each type. A service whose errors have a format of their own gives
// IdempotencyConfig.Refuse, [WithRefuse] and [WithTenantRefuse] a function that writes them.
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
package httpmw
