package httpmw

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"net/http"
	"slices"
	"unicode/utf8"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/uow"
)

var (
	// errFound ends a transaction that found the answer of an earlier one.
	errFound = errors.New("httpmw: the key was completed before")
	// errRefusal drops the work of a handler that answered 400 or more.
	errRefusal = errors.New("httpmw: the handler refused the request")
)

// releasedError rolls everything back and lets the handler's answer be sent. Where it has a cause, another run in a new
// transaction may do better, and uow.Manager.Do sees that through Unwrap.
type releasedError struct{ cause error }

func (*releasedError) Error() string { return "httpmw: the handler's answer frees the key" }

// Unwrap returns the cause, nil if the answer is the handler's own.
func (e *releasedError) Unwrap() error { return e.cause }

// run is what the latest try came to.
type run struct {
	rec   *recorder // nil: the handler was never run
	found *idempotency.Response
}

// once is the life of one request with a key. It holds no connection before it begins and none when it returns.
func (k *keyed) once(ctx context.Context, e *exchange, key idempotency.Key) (*answer, string) {
	fp := fingerprint(e.r, e.body)
	// A key that was seen lately is a retry most likely. Completed rows never change, so a plain look-up is enough to
	// answer it, without a transaction. All others begin one at once and look within.
	if k.store.Recent(key) {
		found, err := k.store.Lookup(ctx, k.units.DB(ctx), key, fp)
		if found != nil || err != nil {
			return k.conclude(ctx, e, run{found: found}, key, err)
		}
	}
	opts := []uow.Option{uow.WithIsolation(sql.LevelReadCommitted)} // see idempotency.Store.Begin
	if k.cfg.RunOnce {
		opts = append(opts, uow.WithoutRetry())
	}
	var last run
	err := k.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		return k.transact(ctx, u, e, key, fp, &last)
	}, opts...)
	return k.conclude(ctx, e, last, key, err)
}

// transact is one try: lock and look-up, the handler behind a savepoint, the answer. COMMIT follows if it returns nil.
func (k *keyed) transact(ctx context.Context, u *uow.Unit, e *exchange, key idempotency.Key, fp idempotency.Fingerprint, now *run) error {
	found, err := k.store.Begin(ctx, u.DB(), key, fp)
	if err != nil {
		return err
	}
	if found != nil {
		now.found = found
		return errFound
	}
	err = k.units.Do(ctx, func(ctx context.Context, _ *uow.Unit) error {
		var err error
		now.rec, err = e.run(ctx, k.cfg.MaxHeld)
		if err == nil && now.rec.status >= http.StatusBadRequest {
			err = errRefusal
		}
		return err
	})
	switch {
	case errors.Is(err, errRefusal):
		// The handler may have made this answer of a deadlock that it lost. It is not the request's fault then.
		if cause := u.Retryable(); cause != nil || frees(now.rec.status) {
			return &releasedError{cause}
		}
	case err != nil:
		return err
	}
	xid, err := k.store.CompleteProbe(ctx, u.DB(), key, fp, k.response(ctx, now.rec))
	if err == nil {
		u.Probed(xid)
	}
	return err
}

// frees tells whether a retry of a request with this answer is to be executed: it may have another outcome.
func frees(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusConflict,
		http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= http.StatusInternalServerError
}

// conclude turns the end of the last try into the answer for the client.
func (k *keyed) conclude(ctx context.Context, e *exchange, last run, key idempotency.Key, err error) (*answer, string) {
	refuse := func(p problem, outcome string) (*answer, string) {
		return p.answer(e.w, k.cfg.ProblemBase, k.retryAfter), outcome
	}
	var released *releasedError
	switch {
	case last.found != nil:
		return k.replay(e, last.found), outcomeReplayed
	case err == nil:
		return last.rec.answer(), outcomeExecuted
	case errors.As(err, &released):
		return last.rec.answer(), outcomeReleased
	case errors.Is(err, idempotency.ErrInProgress):
		return refuse(inProgress(), outcomeInProgress)
	case errors.Is(err, idempotency.ErrMismatch):
		return refuse(keyReused(), outcomeMismatch)
	}
	k.log.ErrorContext(ctx, "oncebox: a request with an idempotency key failed", "key", key.String(),
		"method", e.r.Method, "handler_ran", last.rec != nil, "error", err)
	switch {
	case errors.Is(err, errNotHeld):
		return refuse(answerNotHeld(), outcomeFailed)
	case errors.Is(err, uow.ErrCommitUnknown):
		return refuse(commitUnknown(), outcomeFailed)
	case last.rec == nil:
		return refuse(storeUnavailable(), outcomeFailed)
	default:
		return refuse(transactionFailed(), outcomeFailed)
	}
}

// response is what is stored of a handler's answer.
func (k *keyed) response(ctx context.Context, rec *recorder) idempotency.Response {
	resp := idempotency.Response{Status: rec.status, Header: map[string][]string{}, Body: rec.body.Bytes()}
	for name, values := range rec.sent {
		if !k.stored[name] {
			continue
		}
		if slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }) {
			k.log.WarnContext(ctx, "oncebox: a header is not valid UTF-8 and will be missing in replays", "header", name)
			continue
		}
		resp.Header[name] = values
	}
	if k.cfg.MaxAnswer >= 0 && len(resp.Body) > k.cfg.MaxAnswer {
		resp.Body, resp.Omitted = nil, idempotency.OmittedTooLarge
	}
	return resp
}

// replay makes the stored answer one that can be sent, on top of the headers that other middlewares have set now.
func (k *keyed) replay(e *exchange, found *idempotency.Response) *answer {
	if found.Omitted != "" {
		a := notReplayable(found.Status).answer(e.w, k.cfg.ProblemBase, k.retryAfter)
		if location := found.Header["Location"]; location != nil {
			a.header["Location"] = location
		}
		return a
	}
	header := e.w.Header().Clone()
	maps.Copy(header, found.Header)
	header.Set("Idempotent-Replayed", "true")
	return &answer{status: found.Status, header: header, body: found.Body}
}
