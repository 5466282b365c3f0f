package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/messaging/brokers"
	"github.com/oncebox/oncebox/serve/probe"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/telemetry/prom"
)

// probeTimeout is how long a client may take to send its request, and half of the time for an answer.
const probeTimeout = 3 * time.Second

// newRelay makes the command relay. It listens nowhere without --listen: a port that the operator did not choose may be taken, and
// would show metrics to the network.
func newRelay(s *cli.Session) *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use: "relay", Short: "Publish the events of the outbox to the broker, until the process is stopped", Args: cli.NoArgs,
		Long: `Publish the events of the outbox to the broker, until the process is stopped (SIGTERM). It is for services in other languages, which add events
by the SQL function oncebox_add, and for services whose own processes publish nothing. Any number of processes may run it; they share the lanes.

It needs the address of the broker (` + s.Brokers.Variables() + `), and takes the variables of docs/config.md. A database or a broker
that is away is waited for. With --listen it
answers /healthz, /readyz and /metrics (Prometheus).`,
		Example: `  oncebox relay --listen :8081`,
		RunE:    func(cmd *cobra.Command, _ []string) error { return relay(cmd.Context(), s, listen) },
	}
	cmd.Flags().StringVar(&listen, "listen", "", "address for /healthz, /readyz and /metrics, such as :8081")
	return cmd
}

// relay listens first, so that an address in use ends it at once, and probes are answered while the database is still
// down.
func relay(ctx context.Context, s *cli.Session, listen string) error {
	// Unlike other commands this one runs for months: it logs what a service logs, and waits for a
	// database that is down.
	s.Level, s.Waits = slog.LevelInfo, true
	meters, metrics, err := prom.New()
	if err != nil {
		return err
	}
	s.Meters = meters
	if err := s.ChooseBroker(); err != nil {
		return err
	}
	if s.Kind == nil {
		return fmt.Errorf("the relay needs a broker, and %s: set the variable, for example to %s", s.NoBroker(), s.Brokers.Kinds[0].Example)
	}
	// It is nil until the database has answered. Probes read it in other goroutines.
	var app atomic.Pointer[oncebox.App]
	// One part that fails ends the other, so that the process is restarted as a whole.
	group, ctx := errgroup.WithContext(ctx)
	if listen != "" {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
		if err != nil {
			return fmt.Errorf("--listen: choose another address: %w", err)
		}
		s.Logger().InfoContext(ctx, "oncebox: the relay serves /healthz, /readyz and /metrics", "addr", listener.Addr().String())
		serve(ctx, group, listener, probes(&app, metrics, s.Logger()))
	}
	group.Go(func() error { return publish(ctx, s, &app) })
	return group.Wait()
}

// publish runs the relay. It stores the App in shown when the database has answered; until then the probes
// report that the relay waits. It connects to the broker first, which does not wait: a wrong address is an error although the database is away.
func publish(ctx context.Context, s *cli.Session, shown *atomic.Pointer[oncebox.App]) (err error) {
	t := telemetry.Config{Logger: s.Cfg.Telemetry.Logger, MeterProvider: s.Cfg.Telemetry.MeterProvider}
	broker, err := s.Kind.Connect(ctx, brokers.Options{Env: config.Env, Telemetry: t})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	if err := s.OpenTables(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // the process was stopped before it began
		}
		return err
	}
	// App requires a source, and the relay announces no events under this one: each event carries the source of the
	// service that has recorded it.
	if s.Cfg.UoW.Source == "" {
		s.Cfg.UoW.Source = "oncebox-relay"
	}
	app, err := oncebox.New(s.DB, broker, s.Cfg)
	if err != nil {
		return err
	}
	shown.Store(app)
	return app.Run(ctx, oncebox.Relay)
}

// probes answers /healthz, /readyz, which says whether the relay can work, and /metrics.
func probes(shown *atomic.Pointer[oncebox.App], metrics http.Handler, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", probe.Alive)
	mux.Handle("GET /readyz", probe.Ready(log, func(ctx context.Context) error {
		app := shown.Load()
		if app == nil {
			return errors.New("oncebox: the relay waits for the database")
		}
		return app.Ready(ctx, oncebox.Relay)
	}))
	mux.Handle("GET /metrics", metrics)
	return mux
}

// serve answers requests until ctx is done, and then lets running requests end.
func serve(ctx context.Context, group *errgroup.Group, listener net.Listener, h http.Handler) {
	server := &http.Server{Handler: h, ReadHeaderTimeout: probeTimeout, ReadTimeout: probeTimeout, WriteTimeout: 2 * probeTimeout}
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve /healthz, /readyz and /metrics: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		// ctx has ended, so Shutdown gets a context of its own. It waits as long as an answer may take.
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), server.WriteTimeout)
		defer cancel()
		return server.Shutdown(end)
	})
}
