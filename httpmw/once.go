package httpmw

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/unit"
	"github.com/oncebox/oncebox/uow"
)

// errFound ends a transaction in which the answer of an earlier request was found.
var errFound = errors.New("httpmw: an earlier request with this key has an answer already")

// refusedError rolls back the work of a handler that has answered 400 or more. A cause in it, such as a deadlock, means that another run may succeed;
// uow.Manager.Do finds it through Unwrap.
type refusedError struct {
	cause error
	final bool // the answer is stored in another transaction, so that retries get it and are not executed
}

func (*refusedError) Error() string { return "httpmw: the handler refused the request" }

// Unwrap returns the cause, nil if the answer is the handler's own.
func (e *refusedError) Unwrap() error { return e.cause }

// run is the result of the latest try.
type run struct {
	rec   *recorder // nil if the handler was not run
	found *idempotency.Response
}

// work is a request with a new key, which is tried until it is committed. Its methods are one try.
type work struct {
	k    *keyed
	e    *exchange
	key  *idempotency.Key
	fp   idempotency.Fingerprint
	last run
	resp idempotency.Response // of the last try, as it is stored
}

// once handles one request with a key, from the look-up to COMMIT. When it returns, it holds no connection.
func (k *keyed) once(ctx context.Context, e *exchange, key *idempotency.Key) (*answer, string) {
	r := e.r
	if k.cfg.Fingerprint != nil {
		r = e.request(ctx) // a request whose body can still be read
	}
	fp, err := k.prints.Of(r, e.body)
	if err != nil {
		k.log.WarnContext(ctx, "oncebox: IdempotencyConfig.Fingerprint returned an error, so the request is "+
			"refused", "key", key.String(), "method", e.r.Method,
			"route", e.r.Pattern, "type", fmt.Sprintf("%T", err)) // the error's text may quote the request
		return bodyUnreadable().answer(e.w, k.retryAfter), outcomeRefused
	}
	// A request whose key was seen lately is most likely a retry. Completed rows never change, so a plain look-up answers it, without a transaction.
	// All other requests begin a transaction at once and look up within, or claim the key, which also finds out whether a lease has ended.
	if k.mw.SeenRecently(*key) {
		found, err := k.store.Lookup(ctx, k.units.DB(ctx), *key, fp)
		if found != nil || err != nil && k.cfg.Lease == nil {
			return k.conclude(ctx, e, run{found: found}, *key, err)
		}
	}
	if k.cfg.Lease != nil {
		return k.leased(ctx, e, *key, fp)
	}
	e.base = key.OutsideOf(fp)
	w := &work{k: k, e: e, key: key, fp: fp}
	err = k.units.Do(ctx, w.transact, k.options...)
	if refused, ok := errors.AsType[*refusedError](err); ok && refused.final && !errors.Is(err, uow.ErrTransactionEnded) {
		err = k.storeRefusal(ctx, *key, fp, &w.last)
	}
	return k.conclude(ctx, e, w.last, *key, err)
}

// transact is one try: lock and look-up, the handler, the answer. COMMIT follows if it returns nil. BEGIN is sent with the first statement and
// COMMIT with the last, so that the try costs two round trips besides those of the handler.
func (w *work) transact(ctx context.Context, u *uow.Unit) error {
	found, err := w.begin(ctx, u)
	if err != nil {
		return err
	}
	now := &w.last
	if found != nil {
		now.found = found
		return errFound
	}
	now.rec, err = w.e.run(ctx, w.k.cfg.MaxHeld)
	if err != nil {
		return silence(err, u)
	}
	if now.rec.drops() {
		// If the handler has answered after a deadlock, another run may succeed. Its answer must not be stored then.
		cause := u.Retryable()
		return &refusedError{cause: cause, final: cause == nil && w.k.keeps(w.e, now.rec)}
	}
	if !w.k.cfg.WithoutUnit && !unit.Of(ctx).Used() {
		tellUnused(ctx, w.k.log, &w.k.unused, w.e, now.rec.status, "or set IdempotencyConfig.WithoutUnit")
	}
	if err := w.k.addToken(ctx, u, now.rec); err != nil {
		return err
	}
	return w.complete(ctx, u)
}

// silence adds the unit's retryable error, if there is one, to the error of a handler that has answered nothing. Most likely that error is why: a
// framework has taken it from the handler and renders it further out.
func silence(err error, u *uow.Unit) error {
	if cause := u.Retryable(); cause != nil && errors.Is(err, errSilent) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// addToken puts the token of the unit's events into the answer before it is stored, so that replays have the same token.
func (k *keyed) addToken(ctx context.Context, u *uow.Unit, rec *recorder) error {
	if k.cfg.TokenHeader == "" {
		return nil
	}
	token, err := u.Token(ctx)
	if err != nil {
		return err
	}
	setToken(rec, k.cfg.TokenHeader, token)
	return nil
}

// setToken removes a token that the handler has set itself, also if there is none to set: it could be
// that of other events.
func setToken(rec *recorder, header string, token uow.Token) {
	rec.sent.Del(header)
	if token != "" {
		rec.sent.Set(header, string(token))
	}
}

// tellUnused logs, once for each route, that a handler has answered with success without using its unit: its work was not part of the transaction.
func tellUnused(ctx context.Context, log *slog.Logger, routes *sync.Map, e *exchange, status int, otherwise string) {
	if _, told := routes.LoadOrStore(e.r.Method+" "+e.r.Pattern, true); told {
		return
	}
	log.WarnContext(ctx, "oncebox: a handler succeeded without using its unit of work. Statements that it sends through another pool are not part of the "+
		"transaction, and are repeated if the handler runs again: use uow.MustFromContext(r.Context()), "+otherwise+" if it needs no transaction",
		"method", e.r.Method, "route", e.r.Pattern, "status", status)
}

// begin sends BEGIN, the lock of the key and the look-up in one round trip. The result is the answer of
// an earlier request, or nil.
func (w *work) begin(ctx context.Context, u *uow.Unit) (*idempotency.Response, error) {
	store, err := w.k.mw.In(ctx, u.DB())
	if err != nil {
		return nil, fmt.Errorf("httpmw: begin key %s: %w", w.key, err)
	}
	b := &pgsql.Batch{}
	begun := store.QueueBegin(b, w.key, &w.fp, w.k.idle...)
	if err := unit.Of(ctx).Send(ctx, b); err != nil {
		return nil, fmt.Errorf("httpmw: begin key %s: %w", w.key, err)
	}
	unit.Of(ctx).Identified(begun.XID)
	return begun.Response, begun.Err
}

// complete stores the answer in one round trip with COMMIT. If the connection breaks there, the stored answer proves
// whether the unit was committed.
func (w *work) complete(ctx context.Context, u *uow.Unit) error {
	w.resp = w.k.response(ctx, w.last.rec)
	store, err := w.k.mw.In(ctx, u.DB())
	if err != nil {
		return fmt.Errorf("httpmw: complete key %s: %w", w.key, err)
	}
	b := &pgsql.Batch{}
	if err := store.QueueComplete(b, w.key, &w.fp, &w.resp); err != nil {
		return err
	}
	unit.Of(ctx).ProvedBy(w.proved)
	if !unit.Of(ctx).SendLast(b) {
		return fmt.Errorf("httpmw: complete key %s: the unit has ended", w.key)
	}
	return nil
}

// proved reports whether the answer is stored: see [unit.Unit].ProvedBy.
func (w *work) proved(ctx context.Context, db bun.IDB, xid string) (bool, error) {
	return w.k.mw.Completed(ctx, db, *w.key, w.resp, xid)
}

// storeRefusal stores an answer of 400 or more after its work was rolled back. A savepoint would avoid the second transaction, but every request
// would pay for it. Between the two transactions the key is free, and another request with the key may run. The first of the two that commits its
// answer wins: if it is the other request, this one finds that answer; if it is this one, the other cannot be committed any more. So this does not
// begin the key again: it would wait for the other request, although this one is already refused. There is no need for a lock either, because a
// single statement is never half done.
//
// After an error the refusal may not be stored, so it must not be sent: the client would regard the request as refused for good, while a retry with
// the key may do the work.
func (k *keyed) storeRefusal(ctx context.Context, key idempotency.Key, fp idempotency.Fingerprint, last *run) error {
	db := k.units.DB(ctx) // the pool, because the unit has ended
	err := k.store.Complete(ctx, db, key, fp, k.response(ctx, last.rec))
	if err == nil || errors.Is(err, pgsql.ErrUnconfirmed) { // without a confirmation a look-up could find the answer, and a failover could lose it afterwards
		return err
	}
	found, lookupErr := k.store.Lookup(ctx, db, key, fp)
	if lookupErr != nil {
		return lookupErr
	}
	last.found = found // the answer found may be this one, if only its confirmation was lost
	return err
}

// conclude turns the end of the last try into the answer for the client.
func (k *keyed) conclude(ctx context.Context, e *exchange, last run, key idempotency.Key, err error) (*answer, string) {
	refuse := func(p Problem, outcome string) (*answer, string) { return p.answer(e.w, k.retryAfter), outcome }
	refused, _ := errors.AsType[*refusedError](err)
	switch {
	case last.found != nil:
		return k.replay(e, last.found), outcomeReplayed
	case err == nil:
		k.mw.MarkSeen(key)
		return last.rec.answer(), outcomeExecuted
	case refused != nil && !errors.Is(err, uow.ErrTransactionEnded):
		return last.rec.answer(), outcomeReleased
	case errors.Is(err, idempotency.ErrInProgress), k.mw.IsTaken(err):
		return inProgress().answer(e.w, k.patience(err)), outcomeInProgress
	case errors.Is(err, idempotency.ErrMismatch):
		return refuse(keyReused(k.cfg.ReusedStatus), outcomeMismatch)
	case errors.Is(err, idempotency.ErrStepUnknown): // also on a route that used a lease when the step ran
		k.log.WarnContext(ctx, "oncebox: requests with this key are refused, because it is unknown whether a step of an earlier request was done. Find "+
			"out, and enter the outcome with the command oncebox keys resolve, or on the "+
			"console", "key", key.String(), "method", e.r.Method, "route", e.r.Pattern)
		return refuse(keyUnknown(k.findsOut()), outcomeUnknown)
	}
	k.log.ErrorContext(ctx, "oncebox: a request with an idempotency key failed", "key", key.String(),
		"method", e.r.Method, "route", e.r.Pattern, "handler_ran", last.rec != nil, "error", err)
	return failure(err, last.rec != nil).answerTo(err, e.w, k.retryAfter), outcomeFailed
}

// failure returns the problem for a transaction that has ended with err. ran is true if the handler was run.
func failure(err error, ran bool) Problem {
	switch {
	case errors.Is(err, errNotHeld):
		return answerNotHeld(workUndone)
	case errors.Is(err, uow.ErrCommitUnknown):
		return commitUnknown()
	case errors.Is(err, uow.ErrTransactionEnded):
		return transactionEnded()
	case !ran:
		return storeUnavailable()
	}
	return transactionFailed()
}

// response returns the status, headers and body of a handler's answer that are stored.
func (k *keyed) response(ctx context.Context, rec *recorder) idempotency.Response {
	resp := idempotency.Response{Status: rec.status, Header: map[string][]string{}, Body: rec.body.Bytes()}
	for name, values := range rec.sent {
		if !k.headers.stored(name) || name == "Content-Encoding" && encodedOutside(rec.outer, rec.sent) {
			continue
		}
		if slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }) {
			k.log.WarnContext(ctx, "oncebox: a header of an answer is not valid UTF-8, so it cannot be stored and is missing from replays", "header", name)
			continue
		}
		resp.Header[name] = values
	}
	if k.cfg.MaxAnswer >= 0 && len(resp.Body) > k.cfg.MaxAnswer {
		resp.Body, resp.Omitted = nil, idempotency.OmittedTooLarge
	}
	return resp
}

// replay returns the stored answer, with the headers that other middlewares have set for this request.
func (k *keyed) replay(e *exchange, found *idempotency.Response) *answer {
	if found.Omitted != "" {
		return k.tombstone(e, found)
	}
	header := e.w.Header().Clone()
	varies := header.Values(vary)
	maps.Copy(header, found.Header)
	for _, by := range varies { // a compression further out may depend on more headers than at the first answer
		if !slices.Contains(header.Values(vary), by) {
			header.Add(vary, by)
		}
	}
	header.Set("Idempotent-Replayed", "true")
	return &answer{status: found.Status, header: header, body: found.Body}
}

// tombstone returns the problem for an answer of which only the status was stored.
func (k *keyed) tombstone(e *exchange, found *idempotency.Response) *answer {
	a := notReplayable(found.Status).answer(e.w, k.retryAfter)
	if location := found.Header["Location"]; location != nil {
		a.header["Location"] = location
	}
	return a
}
