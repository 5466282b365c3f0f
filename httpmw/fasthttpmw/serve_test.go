package fasthttpmw_test

import (
	"bufio"
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"testing"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttputil"

	"github.com/oncebox/oncebox/httpmw/fasthttpmw"
)

// ask sends a request to a handler behind the middleware. The answer may be read until the test ends.
func ask(t *testing.T, middleware func(http.Handler) http.Handler, handle func(*fasthttp.RequestCtx) error) *fasthttp.Response {
	t.Helper()
	return askAnd(t, middleware, handle, func(*fasthttp.RequestCtx) {})
}

// askAnd has code further out do something afterwards.
func askAnd(t *testing.T, middleware func(http.Handler) http.Handler, handle func(*fasthttp.RequestCtx) error, later func(*fasthttp.RequestCtx),
) *fasthttp.Response {
	t.Helper()
	server := &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) {
		ctx.Response.Header.Set("X-Outer", "yes")
		render := func(err error) error {
			ctx.Error(err.Error(), http.StatusBadGateway)
			return nil
		}
		if err := fasthttpmw.Serve(context.Background(), ctx, "/pay", middleware, func(context.Context) error { return handle(ctx) }, render); err != nil {
			t.Error(err)
		}
		later(ctx)
	}}
	listener := fasthttputil.NewInmemoryListener()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		if err := errors.Join(listener.Close(), <-ended); err != nil {
			t.Error(err)
		}
	})
	client := &fasthttp.Client{Dial: func(string) (net.Conn, error) { return listener.Dial() }}
	request, response := fasthttp.AcquireRequest(), &fasthttp.Response{}
	request.SetRequestURI("http://service/pay?n=1")
	request.Header.SetMethod(http.MethodPost)
	request.Header.Set("Idempotency-Key", "k")
	request.SetBodyString("body")
	if err := client.Do(request, response); err != nil {
		t.Fatal(err)
	}
	return response
}

// holding runs the handler a given number of times, each time on a writer of its own, and sends the last answer with a header of its own.
func holding(runs int, see func(*http.Request, *held)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			last := &held{}
			for range runs {
				last = &held{header: w.Header().Clone()}
				next.ServeHTTP(last, r)
			}
			see(r, last)
			clear(w.Header())
			maps.Copy(w.Header(), last.header)
			w.Header().Set("X-Held", "yes")
			w.WriteHeader(last.status)
			_, _ = w.Write(last.body)
		})
	}
}

type held struct {
	header http.Header
	status int
	body   []byte
}

func (h *held) Header() http.Header    { return h.header }
func (h *held) WriteHeader(status int) { h.status = status }
func (h *held) Write(p []byte) (int, error) {
	h.body = append(h.body, p...)
	return len(p), nil
}

func expect[T comparable](t *testing.T, want, got T, what string) {
	t.Helper()
	if want != got {
		t.Errorf("%s: want %v, got %v", what, want, got)
	}
}

// Each run begins with the response that was there before, and the answer that is sent is the middleware's.
func TestEachRunBeginsAnew(t *testing.T) {
	runs := 0
	got := ask(t, holding(2, func(r *http.Request, last *held) {
		expect(t, "POST /pay?n=1 k", r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Idempotency-Key"), "request")
		expect(t, "/pay", r.Pattern, "route")
		expect(t, "yes", last.header.Get("X-Outer"), "header of others")
	}), func(ctx *fasthttp.RequestCtx) error {
		if runs++; runs == 1 {
			ctx.Response.Header.Set("X-First", "yes")
			ctx.Response.SetBodyString("first")
			return errors.New("a deadlock")
		}
		expect(t, "body", string(ctx.PostBody()), "body")
		ctx.Response.Header.Set("Set-Cookie", "a=1")
		ctx.Response.SetStatusCode(http.StatusCreated)
		ctx.Response.Header.SetContentType("application/json")
		ctx.Response.SetBodyString(`{}`)
		return nil
	})
	expect(t, http.StatusCreated, got.StatusCode(), "status")
	expect(t, `{}`, string(got.Body()), "body")
	for name, want := range map[string]string{"X-Outer": "yes", "X-Held": "yes", "X-First": "", "Content-Type": "application/json", "Set-Cookie": "a=1"} {
		expect(t, want, string(got.Header.Peek(name)), name)
	}
}

// A handler that sets neither a status nor a body has not answered, and an answer that cannot be held is an error.
func TestWhatIsNoAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		handle func(*fasthttp.RequestCtx) error
		status int
		body   string
	}{
		"silent": {func(*fasthttp.RequestCtx) error { return nil }, 0, ""},
		"204": {func(ctx *fasthttp.RequestCtx) error {
			ctx.SetStatusCode(http.StatusNoContent)
			return nil
		}, http.StatusNoContent, ""},
		"streamed": {func(ctx *fasthttp.RequestCtx) error {
			ctx.SetBodyStreamWriter(func(w *bufio.Writer) { _, _ = w.WriteString("nobody gets it") })
			return nil
		}, http.StatusBadGateway, fasthttpmw.ErrStreamed.Error()},
		"hijacked": {func(ctx *fasthttp.RequestCtx) error {
			ctx.Hijack(func(net.Conn) { t.Error("it is hijacked") })
			return nil
		}, http.StatusBadGateway, fasthttpmw.ErrHijacked.Error()},
		"an error": {func(*fasthttp.RequestCtx) error { return errors.New("no") }, http.StatusBadGateway, "no"},
	} {
		t.Run(name, func(t *testing.T) {
			ask(t, holding(1, func(_ *http.Request, last *held) {
				expect(t, c.status, last.status, "status")
				expect(t, c.body, string(last.body), "body")
				last.status = max(last.status, http.StatusOK) // or fasthttp would say so itself
			}), c.handle)
		})
	}
}

// A refusal of the middleware stays, although fasthttp has one answer per request, which any code may change. The
// handler's own answer may be changed.
func TestRefusalStaysWhatItIs(t *testing.T) {
	refusing := func(status int) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(&held{header: http.Header{}}, r)
				w.Header().Set("X-Refused", "yes")
				w.WriteHeader(status)
				_, _ = w.Write([]byte("refused"))
			})
		}
	}
	passing := holding(1, func(*http.Request, *held) {})
	silent := func(*fasthttp.RequestCtx) error { return nil }
	failing := func(*fasthttp.RequestCtx) error { return errors.New("no") }
	creating := func(ctx *fasthttp.RequestCtx) error {
		ctx.SetStatusCode(http.StatusCreated)
		return nil
	}
	for name, c := range map[string]struct {
		middleware func(http.Handler) http.Handler
		handle     func(*fasthttp.RequestCtx) error
		status     int
		body       string
	}{
		"silent":            {refusing(http.StatusInternalServerError), silent, http.StatusInternalServerError, "refused"},
		"answered":          {refusing(http.StatusConflict), creating, http.StatusConflict, "refused"},
		"an error":          {refusing(http.StatusServiceUnavailable), failing, http.StatusServiceUnavailable, "refused"},
		"the handler's own": {passing, failing, http.StatusOK, "late"},
		"a success":         {passing, creating, http.StatusOK, "late"},
	} {
		t.Run(name, func(t *testing.T) {
			got := askAnd(t, c.middleware, c.handle, func(ctx *fasthttp.RequestCtx) {
				ctx.Response.Reset()
				ctx.SetBodyString("late")
			})
			expect(t, c.status, got.StatusCode(), "status")
			expect(t, c.body, string(got.Body()), "body")
		})
	}
}

// A request that the middleware lets pass is answered by the handler itself, and may be streamed.
func TestStreamOfARequestThatPasses(t *testing.T) {
	got := ask(t, func(next http.Handler) http.Handler { return next }, func(ctx *fasthttp.RequestCtx) error {
		ctx.SetBodyStreamWriter(func(w *bufio.Writer) { _, _ = w.WriteString("streamed") })
		return nil
	})
	expect(t, "streamed", string(got.Body()), "body")
	got = ask(t, func(next http.Handler) http.Handler { return next }, func(*fasthttp.RequestCtx) error { return errors.New("no") })
	expect(t, http.StatusBadGateway, got.StatusCode(), "status")
}
