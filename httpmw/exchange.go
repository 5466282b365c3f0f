package httpmw

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/go-chi/chi/v5"
)

// DefaultMaxBody is the largest request body, in bytes.
const DefaultMaxBody = 1 << 20

// exchange is a request that was read as a whole, so that a handler can be run with it more than once.
type exchange struct {
	next http.Handler
	w    http.ResponseWriter
	r    *http.Request
	body []byte

	// chi's routers leave their progress through the path in an object that the request's context points to. A second
	// run must find it as the first one did.
	route *chi.Context
	saved chi.Context
}

// read reads the body. It is called before a connection to the database is taken: clients may be slow.
func read(next http.Handler, w http.ResponseWriter, r *http.Request, limit int64) (*exchange, *problem) {
	e := &exchange{next: next, w: w, r: r, route: chi.RouteContext(r.Context())}
	if e.route != nil {
		e.saved = *e.route
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
	buf.Grow(int(min(max(r.ContentLength, 0), 64<<10)) + bytes.MinRead) // the length is only what the client says
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

// run runs the handler once, from the start: nothing that an earlier run did to the request or the answer is left.
func (e *exchange) run(ctx context.Context, limit int) (*recorder, error) {
	if e.route != nil {
		*e.route = e.saved
	}
	r := e.r.Clone(ctx)
	r.Body, r.ContentLength, r.TransferEncoding = http.NoBody, int64(len(e.body)), nil
	if len(e.body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(e.body))
	}
	rec := newRecorder(e.w, limit)
	e.next.ServeHTTP(rec, r)
	e.r.Pattern = r.Pattern // for middlewares further out, which label with it
	return rec, rec.finish()
}
