// Package fasthttpmw runs middlewares of net/http, such as those of httpmw, around handlers of fasthttp and of Fiber, versions 2 and 3. Fiber's own
// adaptor.HTTPMiddleware runs the handler when the middleware has returned, and so outside of its transaction; [Serve] runs it within.
//
// docs/other-routers.md has the few lines that connect it to a version of Fiber.
package fasthttpmw

import (
	"context"
	"errors"
	"net/http"

	"github.com/valyala/fasthttp"
)

// Errors of handlers whose answer cannot be held until the middleware sends it. Render gets them, and the answer is a 500.
var (
	ErrStreamed = errors.New("fasthttpmw: the answer is a stream, and fasthttp writes streams after the handler has returned, outside of the middleware's " +
		"transaction: answer with a whole body")
	ErrHijacked = errors.New("fasthttpmw: the handler took over the connection (Hijack), so there is no answer to keep back: mount this route without the " +
		"middleware")
)

// Call runs the handler, with the context that the middleware passes on. The handler may be run more than once: after a deadlock for example.
type Call func(ctx context.Context) error

// Render turns the error of a handler into an answer in ctx.Response, as the framework would do it.
type Render func(err error) error

// Serve runs call inside the middleware, and puts the middleware's answer into ctx.Response. The request's context is made from parent; route is the
// pattern of the route, for logs. The answer of call is taken from ctx.Response. If call returns an error, render writes it there first, so that the
// middleware sees this answer. A handler that has set neither a status other than 200 nor a body has answered nothing. A panic goes on.
//
// If the middleware replaces the handler's answer by one from 400 on, that answer is sent unchanged, even if code further out changes
// ctx.Response afterwards.
//
// If the middleware lets the request pass, as httpmw.Idempotency does without a key, the answer stays as the handler has made it, a stream too. Serve
// returns an error if the request cannot be read, or if its error could not be rendered.
func Serve(
	parent context.Context, ctx *fasthttp.RequestCtx, route string, middleware func(http.Handler) http.Handler, call Call, render Render,
) error {
	r, err := request(parent, ctx, route)
	if err != nil {
		return err
	}
	b := &bridge{ctx: ctx, call: call, render: render, outer: newAnswer(&ctx.Response)}
	// Each run of the handler begins with this response, so that a run that is repeated finds nothing of
	// the one before.
	ctx.Response.CopyTo(&b.before)
	defer func() {
		if b.done {
			return
		}
		b.reset() // after a panic, code that recovers finds nothing of the handler's answer
	}()
	middleware(b).ServeHTTP(b.outer, r)
	b.done = true
	if !b.passed {
		b.reset()
		b.outer.send(&ctx.Response)
		if b.outer.status >= http.StatusBadRequest && b.outer.status != b.answered {
			ctx.TimeoutErrorWithResponse(&ctx.Response) // fasthttp has no other way to send this response unchanged
		}
	}
	return b.err
}

// bridge is the http.Handler that the middleware wraps. It runs the fasthttp handler.
type bridge struct {
	ctx    *fasthttp.RequestCtx
	call   Call
	render Render
	outer  *answer           // where the middleware writes its answer
	before fasthttp.Response // the response as other code had prepared it before the handler
	passed bool              // the middleware let the request pass without holding its answer
	done   bool
	err    error

	answered int // status of the latest run; 0 if the handler answered nothing
}

// reset undoes what the handler has done to the response. What was set before the handler stays.
func (b *bridge) reset() { b.before.CopyTo(&b.ctx.Response) }

// ServeHTTP is one run of the handler.
func (b *bridge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A middleware that holds no answer passes its own writer on. Then the response stays where the handler has put it.
	if w == http.ResponseWriter(b.outer) {
		b.passed = true
		if err := b.call(r.Context()); err != nil {
			b.err = b.render(err)
		}
		return
	}
	b.reset()
	b.answered = 0
	err := b.call(r.Context())
	switch {
	case err != nil:
	case b.ctx.Hijacked():
		// fasthttp would call the handler of Hijack after the answer. The answer is an error now, so that
		// is taken back.
		b.ctx.Hijack(nil)
		err = ErrHijacked
	case b.ctx.Response.IsBodyStream() && b.ctx.Response.Header.ContentLength() < 0:
		b.ctx.Response.ResetBody()
		err = ErrStreamed
	}
	if err == nil {
		b.answered = copyTo(w, &b.ctx.Response)
		return
	}
	b.reset()
	if err := b.render(err); err != nil {
		b.reset()
		b.ctx.Response.SetStatusCode(http.StatusInternalServerError)
	}
	b.answered = copyTo(w, &b.ctx.Response)
}
