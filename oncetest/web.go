package oncetest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
)

// Web sends requests to a service under test. [Serve] makes it. It is also an http.Handler, for requests of another kind.
//
// Send and ServeHTTP may be called from several goroutines at once, so a test can send requests in parallel. After a crash, let all of them return before
// [Kit.Drain] is called: it replaces the process.
type Web struct {
	kit     *Kit
	present func() http.Handler
}

// Service is a serve.Service. It is an interface, so that a test of an App without package serve links nothing of that package: its exporters alone are
// 20 modules.
type Service interface {
	Build(ctx context.Context, db *bun.DB, broker oncebox.Broker, cfg config.Config) (app *oncebox.App, requests http.Handler, err error)
	End() error
}

// Serve is [New] for a service of package serve. It takes the value that main gives to serve.Main, with Configure, Migrate, Setup and Close. The broker
// is that of the test, and no variable of the environment is read. The source of the events is that of the service.
//
//	kit, web := oncetest.Serve(t, orders.Service())
//	require.Equal(t, http.StatusCreated, web.Send("POST", "/orders/o-1", "", "Idempotency-Key", "key-1").Code)
//	kit.Drain()
func Serve(t testing.TB, s Service) (*Kit, *Web) {
	t.Helper()
	t.Cleanup(func() {
		if err := s.End(); err != nil {
			t.Errorf("oncetest: Serve: Service.Close: %v", err)
		}
	})
	kit, present := NewService(t, func(setup Setup) (http.Handler, *oncebox.App, error) {
		setup.Config.UoW.Source = ""
		app, requests, err := s.Build(t.Context(), setup.DB, setup.Broker, setup.Config)
		return requests, app, err
	})
	return kit, &Web{kit, present}
}

// Send sends a request, and returns the answer of the service's present process. header has names and values in turn. A process that has died answers as
// a process does that has lost its database: see [Kit.CrashAt].
func (w *Web) Send(method, target, body string, header ...string) *httptest.ResponseRecorder {
	w.kit.t.Helper()
	answer := httptest.NewRecorder()
	w.ServeHTTP(answer, w.request(w.kit.t.Context(), method, target, body, header))
	return answer
}

// SendAndDrain is [Web.Send] for a request that waits for a consumer, as a request under fresh.Reads does. It calls [Kit.Drain] when the request has come to
// its first statement, or is answered, and returns the answer after both have ended.
func (w *Web) SendAndDrain(method, target, body string, header ...string) *httptest.ResponseRecorder {
	w.kit.t.Helper()
	begun, ended := make(chan struct{}), make(chan struct{})
	ctx := context.WithValue(w.kit.t.Context(), firstKey{}, sync.OnceFunc(func() { close(begun) }))
	r, answer := w.request(ctx, method, target, body, header), httptest.NewRecorder()
	go func() {
		defer close(ended)
		w.ServeHTTP(answer, r)
	}()
	select {
	case <-begun:
	case <-ended:
	}
	w.kit.Drain()
	<-ended
	return answer
}

func (w *Web) request(ctx context.Context, method, target, body string, header []string) *http.Request {
	w.kit.t.Helper()
	if len(header)%2 != 0 {
		w.kit.t.Fatalf("oncetest: Send: %q are no pairs of a name and a value", header)
	}
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	for n := 0; n < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	return r
}

// ServeHTTP answers a request.
func (w *Web) ServeHTTP(to http.ResponseWriter, r *http.Request) { w.present().ServeHTTP(to, r) }
