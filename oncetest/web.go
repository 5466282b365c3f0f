package oncetest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
)

// Web sends requests to a service under test. [Serve] makes it. It is also an http.Handler, for requests of another kind.
type Web struct {
	t       testing.TB
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
	return kit, &Web{t, present}
}

// Send sends a request, and returns the answer of the service's present process. header has names and values in turn. A process that has died answers as
// a process does that has lost its database: see [Kit.CrashAt].
func (w *Web) Send(method, target, body string, header ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	if len(header)%2 != 0 {
		w.t.Fatalf("oncetest: Send: %q are no pairs of a name and a value", header)
	}
	r := httptest.NewRequestWithContext(w.t.Context(), method, target, strings.NewReader(body))
	for n := 0; n < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	answer := httptest.NewRecorder()
	w.ServeHTTP(answer, r)
	return answer
}

// ServeHTTP answers a request.
func (w *Web) ServeHTTP(to http.ResponseWriter, r *http.Request) { w.present().ServeHTTP(to, r) }
