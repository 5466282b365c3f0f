package tour

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/localpg"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/brokers"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/telemetry"
)

// prefixVar is the variable with the prefix of all topics. Processes that the story starts have it from this one.
const prefixVar = "ONCEBOX_TOPIC_PREFIX"

// Main runs the story and returns the exit code of the program. The broker is the first kind, or lives in this process if there are no kinds.
func Main(kinds ...brokers.Kind) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := start(ctx, kinds)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		return 1
	}
	return 0
}

func start(ctx context.Context, kinds []brokers.Kind) error {
	if isChild() {
		return child(ctx)
	}
	choice := brokers.Choice{Kinds: kinds, Flag: "-broker", Others: others}
	usual := brokers.None
	if len(kinds) > 0 {
		usual = kinds[0].Name
	}
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	serve := flags.Bool("serve", false, "serve at the end, until Ctrl-C")
	name := flags.String("broker", usual, "the broker: "+strings.Join(append(strings.Fields(choice.Built()), brokers.None), ", "))
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	kind, err := choice.Choose(*name)
	if err != nil {
		return err
	}
	return run(ctx, os.Stdout, kind, *serve)
}

// others returns the program for another broker.
func others(name string) string {
	if name == "pulsar" {
		return "go run ./examples/quickstart/pulsar"
	}
	return "go run -C messaging/" + name + " ./examples/quickstart"
}

// connect connects to the broker. The topics have a prefix of their own, so that nothing of an earlier run is met.
func connect(ctx context.Context, kind *brokers.Kind) (*gate, error) {
	if kind == nil {
		return &gate{Connection: memory.New(&memory.Config{Telemetry: silent()})}, nil
	}
	if err := os.Setenv(prefixVar, strings.ToLower(rand.Text()[:8])+"."); err != nil {
		return nil, err
	}
	broker, err := kind.Connect(ctx, brokers.Options{Env: config.Env})
	return &gate{Connection: broker}, err
}

func run(ctx context.Context, out io.Writer, kind *brokers.Kind, serve bool) (err error) {
	postgres, err := localpg.Start(ctx, localpg.Output(out))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, postgres.Close()) }()
	broker, err := connect(ctx, kind)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	db, app, err := open(ctx, postgres.URL, broker)
	if err != nil {
		return err
	}
	defer db.Close()

	consumer := &spending{units: app.UoW}
	router := messaging.NewRouter(app.Registry)
	messaging.Handle(router, consumer.orderPlaced)
	app.Consume(topic, "spending", router)

	if err := tables(ctx, app, db); err != nil {
		return err
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- app.Run(running) }()

	handler := routes(app.UoW, app.Idempotency)
	if serve {
		if err := mountConsole(handler, db, app); err != nil {
			cancel()
			return errors.Join(err, <-ended)
		}
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	s := &story{out: out, db: db, app: app, broker: broker, consumer: consumer, database: postgres.URL, url: server.URL}
	err = s.tell(ctx)
	if err == nil && serve {
		s.serve(ctx)
	}
	cancel()
	return errors.Join(err, <-ended)
}

// open opens the database and wires a service to it.
func open(ctx context.Context, databaseURL string, broker oncebox.Broker) (*bun.DB, *oncebox.App, error) {
	cfg, err := config.FromEnv()
	if err != nil {
		return nil, nil, err
	}
	cfg.DatabaseURL = databaseURL
	cfg.UoW.Source = service
	cfg.Telemetry = silent()
	db, err := config.OpenDB(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	app, err := oncebox.New(db, broker, cfg)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	event.Register[OrderPlaced](app.Registry)
	return db, app, nil
}

// silent has no log: the story prints what happens.
func silent() telemetry.Config { return telemetry.Config{Logger: slog.New(slog.DiscardHandler)} }

// tables makes those of the framework and those of this example.
func tables(ctx context.Context, app *oncebox.App, db *bun.DB) error {
	if err := app.Migrate(ctx); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, `
		CREATE TABLE orders (id text PRIMARY KEY, customer text NOT NULL, total_cents bigint NOT NULL, version bigint NOT NULL);
		CREATE TABLE spending (customer text PRIMARY KEY, orders int NOT NULL, cents bigint NOT NULL)`)
	return err
}
