package shop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/messaging/brokers"
)

const (
	// defaultSource is the service's name in its events.
	defaultSource = "orders"
	// conflictAttempts is how often a request is tried when others change its order at the same time.
	conflictAttempts = 20

	// readTimeout is how long a client may take to send a request.
	readTimeout = 15 * time.Second
	// requestTimeout is how long the work for a request may take once it is there.
	requestTimeout = httpmw.DefaultTimeout
	// commitTimeout is uow.Config.CommitTimeout, unless the configuration says otherwise.
	commitTimeout = 10 * time.Second
	// answerTimeout is how long a client may take to read an answer.
	answerTimeout = 15 * time.Second
)

// writeTimeout is the limit from a request's headers to the end of its answer. The time for COMMIT comes on top of the
// time for the work, twice: if its answer is lost, the search for the outcome may take as long again. A client that is
// cut off before that does not learn that the outcome is unknown.
//
// A shutdown waits as long, so that all running requests are answered. Give the process that time after
// SIGTERM: 80 seconds.
func writeTimeout(commit time.Duration) time.Duration {
	return readTimeout + requestTimeout + 2*commit + answerTimeout
}

// service is one process of the reference service.
type service struct {
	role    Role
	db      *bun.DB
	broker  oncebox.Broker
	app     *oncebox.App
	handler http.Handler
	log     *slog.Logger
	unready unready
	// commit is how long COMMIT may take.
	commit time.Duration

	traces    trace.TracerProvider
	endTraces func() error
}

// newService wires a process and makes sure of its tables. Close it after use.
func newService(ctx context.Context, role Role, kind *brokers.Kind, cfg config.Config) (*service, error) {
	s := &service{role: role, log: slog.Default()}
	if err := s.open(ctx, kind, cfg); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *service) open(ctx context.Context, kind *brokers.Kind, cfg config.Config) (err error) {
	if cfg.UoW.Source == "" {
		cfg.UoW.Source = defaultSource
	}
	if cfg.UoW.DefaultTenant == "" {
		cfg.UoW.DefaultTenant = "default"
	}
	if cfg.UoW.Retry.MaxAttempts == 0 {
		cfg.UoW.Retry.MaxAttempts = conflictAttempts
	}
	if cfg.UoW.CommitTimeout == 0 {
		cfg.UoW.CommitTimeout = commitTimeout
	}
	s.commit = cfg.UoW.CommitTimeout
	var metrics http.Handler
	if cfg.Telemetry.MeterProvider, metrics, err = newMetrics(); err != nil {
		return err
	}
	if s.traces, s.endTraces, err = newTraces(); err != nil {
		return err
	}
	cfg.Telemetry.TracerProvider = s.traces
	if s.db, err = config.OpenDB(ctx, cfg); err != nil {
		return err
	}
	if s.broker, err = openBroker(ctx, kind, cfg); err != nil {
		return err
	}
	if s.app, err = oncebox.New(s.db, s.broker, cfg); err != nil {
		return err
	}
	registerEvents(s.app.Registry)
	s.app.Consume(cfg.UoW.TopicPrefix+OrderTopic, SummaryConsumer, summarize(s.app.UoW, s.app.Registry))

	if err := s.app.Migrate(ctx); err != nil {
		return err
	}
	if err := createTables(ctx, s.db); err != nil {
		return err
	}
	s.handler, err = s.routes(metrics, cfg)
	return err
}

func (s *service) routes(metrics http.Handler, cfg config.Config) (http.Handler, error) {
	r := chi.NewRouter()
	r.Use(middleware.Recoverer)
	r.Get("/healthz", alive)
	r.Get("/readyz", s.ready)
	r.Method(http.MethodGet, "/metrics", metrics)
	if s.role.serves() {
		a := &api{units: s.app.UoW, log: s.log, traces: s.traces}
		a.mount(r, s.app, cfg)
	}
	return r, s.mountConsole(r)
}

// server limits how long a client can make the service wait.
func (s *service) server() *http.Server {
	return &http.Server{
		Handler: s.handler, ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout(s.commit),
		IdleTimeout: 2 * time.Minute,
	}
}

// bounded limits the time of a request. Requests with a key have a timeout of their own, because they
// continue when the client has left.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Run answers requests and runs the parts of the role until ctx is done. Then requests under way are answered, batches
// and messages under way are finished, and nil is returned.
func (s *service) Run(ctx context.Context, listener net.Listener) error {
	server := s.server()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.app.Run(ctx, s.role.parts()...) })
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve HTTP: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), server.WriteTimeout)
		defer cancel()
		return server.Shutdown(end)
	})
	return group.Wait()
}

// Close lets go of broker and database.
func (s *service) Close() error {
	var errs []error
	if s.broker != nil {
		errs = append(errs, s.broker.Close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	if s.endTraces != nil {
		errs = append(errs, s.endTraces())
	}
	return errors.Join(errs...)
}
