package httpmw

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"

	"github.com/go-chi/chi/v5"

	"github.com/oncebox/oncebox/idempotency"
)

// DefaultMaxBody is the default of IdempotencyConfig.MaxBody, and the limit of [UnitOfWork]: the largest request body, in bytes.
const DefaultMaxBody = 1 << 20

// exchange is one request. Its body was read completely, so that the handler can be run more than once.
type exchange struct {
	next http.Handler
	w    http.ResponseWriter
	r    *http.Request
	body []byte
	base string // the start of the keys of outgoing requests, see [Transport]; "" if the context of a run has it, or if they get no keys

	begun bool // the handler panicked within an answer, and Echo takes the answer for sent
	empty bool // IdempotencyConfig.EmptyAnswer: a handler that writes nothing means 200
	log   *slog.Logger

	// chi's routers record their progress through the path in an object that the request's context points to. When they have returned, they use it for
	// another request, and behind a http.TimeoutHandler they may return before the handler. So each run gets a copy of the object as it was in the
	// beginning.
	outer *chi.Context // the object of the request's context; nil without chi
	route *chi.Context // the copy of the present run
}

// read reads the body. It is called before a connection to the database is taken: clients may be slow.
func read(next http.Handler, w http.ResponseWriter, r *http.Request, limit int64) (*exchange, *Problem) {
	e := &exchange{next: next, w: w, r: r, outer: chi.RouteContext(r.Context())}
	if e.outer != nil {
		e.route = e.outer.Clone()
	}
	if r.Body == nil || r.Body == http.NoBody {
		return e, nil
	}
	if limit >= 0 && r.ContentLength > limit {
		p := bodyTooLarge()
		return nil, &p
	}
	from := r.Body
	if limit >= 0 {
		from = http.MaxBytesReader(w, r.Body, limit)
	}
	var buf bytes.Buffer
	buf.Grow(int(min(max(r.ContentLength, 0), 64<<10)) + bytes.MinRead) // the client may have sent any Content-Length
	if _, err := buf.ReadFrom(from); err != nil {
		p := bodyUnreadable()
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			p = bodyTooLarge()
		}
		return nil, &p
	}
	e.body = buf.Bytes()
	return e, nil
}

// whole reports whether the body is complete. If other code has read it before, a part is missing, and different requests would look the same. A form
// that was parsed before, for example by a protection against forged requests, is encoded again.
func (e *exchange) whole() bool {
	if len(e.body) > 0 {
		return e.r.ContentLength <= 0 || e.r.ContentLength == int64(len(e.body))
	}
	media, _, _ := mime.ParseMediaType(e.r.Header.Get("Content-Type"))
	if e.r.PostForm != nil && media == "application/x-www-form-urlencoded" {
		e.body = []byte(e.r.PostForm.Encode())
		return true
	}
	return e.r.ContentLength <= 0 && e.r.MultipartForm == nil
}

// request returns the request as it arrived, with an unread body.
func (e *exchange) request(ctx context.Context) *http.Request {
	if e.route != nil {
		ctx = context.WithValue(ctx, chi.RouteCtxKey, e.route.Clone())
	}
	r := e.r.Clone(ctx)
	r.Body, r.ContentLength, r.TransferEncoding = http.NoBody, int64(len(e.body)), nil
	if len(e.body) > 0 {
		r.Body = newBody(e.body)
	}
	return r
}

// body is the unread body of a request.
type body struct{ bytes.Reader }

func newBody(text []byte) io.ReadCloser {
	b := &body{}
	b.Reset(text)
	return b
}

// Close does nothing.
func (*body) Close() error { return nil }

// run runs the handler once, from the start: nothing that an earlier run did to the request or the answer is left.
func (e *exchange) run(ctx context.Context, limit int) (*recorder, error) {
	if e.base != "" {
		ctx = idempotency.NewContext(ctx, e.base)
	}
	r := e.request(ctx)
	// Deferred, so that a middleware that measures requests has the route also after a panic.
	defer e.label(r)
	rec, past := newRecorder(e.w, limit), watchPast(e.w)
	e.serve(rec, r, past)
	if past() {
		return rec, errPast
	}
	return rec, rec.finish(e.empty)
}

// serve calls the handler and ends its recorder, whichever way the handler ends.
func (e *exchange) serve(rec *recorder, r *http.Request, past func() bool) {
	by := panicked // the handler may also end its goroutine, which looks like a panic here
	defer func() {
		e.begun = rec.end(by, e.tellLate) && ofEcho(e.w)
		if by == panicked && past() {
			mute(e.w) // the panic goes on
		}
	}()
	e.next.ServeHTTP(rec, r)
	by = returned
}

// tellLate logs that a handler has written after its return. Nobody gets these bytes, because the answer is sent already. Most often a framework
// renders the error of its handler too late.
func (e *exchange) tellLate() {
	e.log.Error("oncebox: code wrote to the response after its handler had returned; these bytes are lost. If a web framework renders the errors of "+
		"handlers, let it do so inside the middleware (docs/other-routers.md). If a goroutine writes the response, let the handler wait for it",
		"method", e.r.Method, "route", e.r.Pattern)
}

// label copies the route that the handler's router has found to the outer request, for middlewares further out that use it as a label. It does
// nothing if the request was given up, because its chi.Context may belong to another request by now.
func (e *exchange) label(r *http.Request) {
	e.r.Pattern = r.Pattern
	if e.outer == nil || e.r.Context().Err() != nil {
		return
	}
	found := chi.RouteContext(r.Context())
	if slices.Equal(e.outer.RoutePatterns, found.RoutePatterns) {
		return // an outer router has found a route already
	}
	c := found.Clone()
	e.outer.RoutePatterns, e.outer.URLParams, e.outer.RouteMethod = c.RoutePatterns, c.URLParams, c.RouteMethod
}
