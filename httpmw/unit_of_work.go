package httpmw

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/oncebox/oncebox/uow"
)

// UnitOfWork returns a middleware that runs a handler in a transaction. An answer below 400 commits it; one from 400 on and
// a panic roll it back. The answer is sent after COMMIT; when COMMIT fails, it is a 503 problem. It panics if m is nil.
//
// The request is read before a connection is taken, up to [DefaultMaxBody], and the answer is held in memory, up to
// [DefaultMaxHeld]. A handler that needs more, or streams, opens its unit itself. So should handlers that only read.
//
// A deadlock, a serialization failure or a conflict of versions runs the handler again, as [Idempotency] does. The
// transaction ends with the request: a client that goes away rolls it back, unless COMMIT was sent by then.
func UnitOfWork(m *uow.Manager) func(http.Handler) http.Handler {
	if m == nil {
		panic("httpmw: UnitOfWork: the manager is nil: pass uow.New(db, ...)")
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			e, p := read(next, w, r, DefaultMaxBody)
			if p != nil {
				p.answer(w, DefaultProblemBase, "1").write(w, r)
				return
			}
			inUnit(m, e).write(w, r)
		})
	}
}

func inUnit(m *uow.Manager, e *exchange) *answer {
	var rec *recorder
	err := m.Do(e.r.Context(), func(ctx context.Context, u *uow.Unit) error {
		var err error
		if rec, err = e.run(ctx, DefaultMaxHeld); err == nil && rec.status >= http.StatusBadRequest {
			return &refusedError{cause: u.Retryable()}
		}
		return err
	}, uow.WithInnerRules())
	var refused *refusedError
	if err == nil || errors.As(err, &refused) {
		return rec.answer()
	}
	slog.Default().ErrorContext(e.r.Context(), "oncebox: a request in a unit of work failed", "method", e.r.Method, "route", e.r.Pattern,
		"handler_ran", rec != nil, "error", err)
	p := failure(err, rec != nil)
	if errors.Is(err, uow.ErrCommitUnknown) {
		p.Retryable, p.Detail = false, "Read the resource to find out. A request with an Idempotency-Key could be repeated safely."
	}
	return p.answer(e.w, DefaultProblemBase, "1")
}
