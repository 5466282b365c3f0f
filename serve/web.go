package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/serve/probe"
)

// web answers requests, and the questions of orchestrators and operators, at one address or at two.
type web struct {
	main  *server // nil: the process answers no requests, and operators have an address of their own
	admin *server // nil: operators are answered at main

	// Both are nil until the service is set up.
	requests atomic.Pointer[http.Handler]
	console  atomic.Pointer[http.Handler]
}

// server is an HTTP server with its address.
type server struct {
	http.Server

	at net.Listener
}

// listen takes the addresses. Nothing is answered yet.
func (p *process) listen(ctx context.Context) (w *web, err error) {
	w = &web{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	admin := p.operators(w)
	switch {
	case p.cfg.AdminAddr == "":
		w.main, err = p.listenAt(ctx, "ADDR", p.cfg.Addr, before(admin, http.HandlerFunc(w.answer)))
		return w, err
	case p.cfg.has(API):
		if w.main, err = p.listenAt(ctx, "ADDR", p.cfg.Addr, http.HandlerFunc(w.answer)); err != nil {
			return w, err
		}
	}
	w.admin, err = p.listenAt(ctx, "ADMIN_ADDR", p.cfg.AdminAddr, admin)
	return w, err
}

// listenAt takes one address. The limits of the server are for clients that are slow.
func (p *process) listenAt(ctx context.Context, variable, addr string, h http.Handler) (*server, error) {
	at, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("serve: %s%s: choose another address, with port 0 for a free port: %w", prefix, variable, err)
	}
	read := p.cfg.ReadTimeout
	// COMMIT comes on top of the work, and if its answer is lost, the search for the outcome may take as long again. A client that is cut off before that
	// does not learn that the outcome is unknown.
	work := p.cfg.RequestTimeout + 2*p.app.UoW.WithDefaults().CommitTimeout
	return &server{at: at, Server: http.Server{
		Handler: h, ReadHeaderTimeout: read, ReadTimeout: read, WriteTimeout: read + work + read, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(p.quiet.Handler(), slog.LevelWarn),
	}}, nil
}

// operators returns the handler of /healthz, /readyz, /metrics and /console/.
func (p *process) operators(w *web) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", probe.Alive)
	mux.Handle("GET /readyz", probe.Ready(p.log, p.ready))
	mux.Handle("GET /metrics", p.metrics)
	mux.HandleFunc("/console/", func(rw http.ResponseWriter, r *http.Request) {
		page := w.console.Load()
		if page == nil {
			http.NotFound(rw, r)
			return
		}
		_ = http.NewResponseController(rw).SetWriteDeadline(time.Time{}) // the replay of many dead letters is one request
		(*page).ServeHTTP(rw, r)
	})
	return mux
}

// before lets first answer what it has a route for, and next everything else, as it was sent: a ServeMux would redirect some paths.
func before(first *http.ServeMux, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, route := first.Handler(r); route != "" {
			first.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// answer answers a request of the service.
func (w *web) answer(rw http.ResponseWriter, r *http.Request) {
	h := w.requests.Load()
	if h == nil {
		httpmw.WriteProblem(rw, r, httpmw.Problem{
			Status: http.StatusServiceUnavailable, Detail: "The service starts. Send the request again.", Retryable: true,
		})
		return
	}
	(*h).ServeHTTP(rw, r)
}

// letIn sets the handlers.
func (w *web) letIn(requests, console http.Handler) {
	if console != nil {
		w.console.Store(&console)
	}
	w.requests.Store(&requests)
}

// servers returns the servers that there are.
func (w *web) servers() (all []*server) {
	for _, s := range []*server{w.main, w.admin} {
		if s != nil {
			all = append(all, s)
		}
	}
	return all
}

// serve answers from now on. An error of a server goes to fail.
func (w *web) serve(fail context.CancelCauseFunc) {
	for _, s := range w.servers() {
		go func() {
			if err := s.Serve(s.at); !errors.Is(err, http.ErrServerClosed) {
				fail(fmt.Errorf("serve: HTTP at %s: %w", s.at.Addr(), err))
			}
		}()
	}
}

// addr returns the address of the requests, or that of the operators if there are no requests.
func (w *web) addr() net.Addr { return w.servers()[0].at.Addr() }

// attrs are the addresses for a line of the log.
func (w *web) attrs() []any {
	var attrs []any
	if w.admin != nil {
		attrs = append(attrs, "admin_addr", w.admin.at.Addr().String())
	}
	return append(attrs, "addr", w.addr().String())
}

// endRequests accepts no more requests, and waits for the begun ones, for the given time at most.
func (w *web) endRequests(ctx context.Context, limit time.Duration) error {
	if w.main == nil {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := w.main.Shutdown(waiting); err != nil {
		return errors.Join(fmt.Errorf("serve: requests were not finished within %s (see %sEND_TIMEOUT): %w", limit, prefix, err), w.main.Close())
	}
	return nil
}

// endAdmin ends the address of the operators, which has shown until now how the process ends.
func (w *web) endAdmin(ctx context.Context) error {
	if w.admin == nil {
		return nil
	}
	return w.admin.Shutdown(ctx)
}

// close lets go of the addresses before anything was served.
func (w *web) close() error {
	var errs []error
	for _, s := range w.servers() {
		errs = append(errs, s.at.Close())
	}
	return errors.Join(errs...)
}
