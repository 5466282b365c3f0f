package httpmw

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/oncebox/oncebox/internal/unit"
	"github.com/oncebox/oncebox/uow"
)

// UnitOfWork returns a middleware that runs a handler in a transaction. An answer below 400 commits it. An answer from 400 on, a panic, and a
// handler that has written no answer roll it back. The answer is sent after COMMIT; when COMMIT fails, it is a 503 problem. It panics if m is nil.
//
// The request is read before a connection is taken, up to [DefaultMaxBody], and the answer is held in memory, up to [DefaultMaxHeld]. A handler
// that needs more, or that streams, should open its unit itself. So should handlers that only read.
//
// A deadlock, a serialization failure or a conflict of versions runs the handler again, as [Idempotency] does. The
// transaction ends with the request: a client that goes away rolls it back, unless COMMIT was sent by then.
//
// The log has a warning, once for each route, if a handler answers below 400 to a method that writes, and has not used its unit: statements through
// a pool of its own have committed by themselves.
func UnitOfWork(m *uow.Manager, opts ...UnitOfWorkOption) func(http.Handler) http.Handler {
	if m == nil {
		panic("httpmw: UnitOfWork: the manager is nil: pass uow.New(db, ...)")
	}
	shared := &unitOfWork{units: m, sender: sender{base: DefaultProblemBase, log: m.Telemetry().Logger}}
	for _, opt := range opts {
		opt(shared)
	}
	return func(next http.Handler) http.Handler {
		next = markGoesOn(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { shared.sender.send(shared.handle(next, w, r), w, r) })
	}
}

// UnitOfWorkOption changes what [UnitOfWork] does.
type UnitOfWorkOption func(*unitOfWork)

// WithTokenHeader puts the [uow.Token] of the request's events into this header of answers below 400, for inbox.Inbox.Await. A value that the
// handler sets is replaced. An answer without events has no token. It panics if name is not the name of a header.
func WithTokenHeader(name string) UnitOfWorkOption {
	if !headerName(name) {
		panic(fmt.Sprintf("httpmw: WithTokenHeader: %q is not a valid name of a header", name))
	}
	return func(w *unitOfWork) { w.tokenHeader = name }
}

// WithEmptyAnswer answers 200 for a handler that writes neither a status nor a body, as net/http does. Without it the answer is 500 and nothing is
// committed, because a failed handler looks the same if a framework renders its error further out.
func WithEmptyAnswer() UnitOfWorkOption { return func(w *unitOfWork) { w.empty = true } }

// WithRefuse makes the middleware write its refusals in the format of the service. Default: application/problem+json.
func WithRefuse(refuse RefuseFunc) UnitOfWorkOption {
	return func(w *unitOfWork) { w.sender.own = refuse }
}

// unitOfWork holds the state that the requests of one [UnitOfWork] share.
type unitOfWork struct {
	units       *uow.Manager
	tokenHeader string
	empty       bool // see WithEmptyAnswer
	sender      sender
	unused      sync.Map // routes for which an unused unit was logged
}

// retryAfter is the Retry-After of a failed transaction: one second, because nobody knows how long the trouble lasts.
const retryAfter = "1"

func (w *unitOfWork) handle(next http.Handler, to http.ResponseWriter, r *http.Request) *answer {
	if goesOn(next) {
		tellGoesOn(r, w.units.Telemetry().Logger, "UnitOfWork")
		return misplaced().answer(to, retryAfter)
	}
	e, p := read(next, to, r, DefaultMaxBody)
	if p != nil {
		return p.answer(to, retryAfter)
	}
	e.empty, e.log = w.empty, w.units.Telemetry().Logger
	defer func() {
		if e.begun { // else nobody would answer after the panic, see Idempotency
			w.sender.send(answerNotHeld(workUndone).answer(to, retryAfter), to, r)
		}
	}()
	return w.answer(e)
}

func (w *unitOfWork) answer(e *exchange) *answer {
	var rec *recorder
	var token uow.Token
	err := w.units.Do(e.r.Context(), func(ctx context.Context, u *uow.Unit) error {
		var err error
		if rec, err = e.run(ctx, DefaultMaxHeld); err == nil && rec.drops() {
			return &refusedError{cause: u.Retryable()}
		}
		if err == nil && !unit.Of(ctx).Used() && !safe(e.r.Method) {
			tellUnused(ctx, w.units.Telemetry().Logger, &w.unused, e, rec.status, "or mount it without httpmw.UnitOfWork")
		}
		return silence(err, u)
	}, uow.WithNestedChecks(), uow.WithToken(&token))
	if err == nil && w.tokenHeader != "" {
		setToken(rec, w.tokenHeader, token)
	}
	var refused *refusedError
	if err == nil || errors.As(err, &refused) && !errors.Is(err, uow.ErrTransactionEnded) {
		return rec.answer()
	}
	w.units.Telemetry().Logger.ErrorContext(e.r.Context(), "oncebox: a request in a unit of work failed", "method", e.r.Method, "route", e.r.Pattern,
		"handler_ran", rec != nil, "error", err)
	p := failure(err, rec != nil)
	if errors.Is(err, uow.ErrCommitUnknown) {
		p.Retryable, p.Detail = false, "Read the resource to find out. Only a request with an Idempotency-Key can be repeated safely."
	}
	return p.answerTo(err, e.w, retryAfter)
}
