package kills

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/examples/orders/shop"
	"github.com/oncebox/oncebox/localpg"
	"github.com/oncebox/oncebox/messaging/brokers"
	"github.com/oncebox/oncebox/serve"
)

// Program is a program that runs a trial on a broker. Its main calls Main.
type Program struct {
	// Kind is the broker. Required.
	Kind brokers.Kind
	// Watch returns the reader of the wire. It is called before anything is published, because some brokers keep messages only for a queue or a
	// subscription that exists. Required.
	Watch func(ctx context.Context) (Wire, error)
	// Start starts the broker and sets its variables. It may use the folder. It is not called if the variable with the address of the broker is
	// set: then the trial runs on that broker and leaves it alone. Required.
	Start func(ctx context.Context, dir string) (Broker, error)
}

// Broker is a broker that a trial may kill.
type Broker interface {
	// Crash kills the broker with SIGKILL and starts it again.
	Crash(ctx context.Context) error
	// Close ends the broker for good.
	Close() error
}

// Main ends the process. In a process that a [Fleet] has started it is the service, otherwise the trial.
func (p *Program) Main() {
	if Serves() {
		serve.Main(shop.Service(), p.Kind)
	}
	os.Exit(p.Run(os.Args[1:]...))
}

// Run runs a trial on a PostgreSQL of its own, prints the report in one line, and returns the exit code of the program: 1 if anything was lost,
// happened twice or came out of order.
//
//	orders broker=nats orders=6000 ... kills=60 kills_broker=10 lost=0 twice=0 disorder=0 ... wire_duplicates=31 ...
func (p *Program) Run(args ...string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := p.run(ctx, args)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "kills:", err)
		return 1
	}
	return 0
}

func (p *Program) run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("kills", flag.ContinueOnError)
	orders := flags.Int("orders", 6000, "how many orders are placed, at least 600")
	rounds := flags.Int("rounds", 20, "how often api, a projector and a consumer are killed each; the broker is killed in every second round")
	if err := flags.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "oncebox-kills-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	t := &Trial{Name: p.Kind.Name, Orders: *orders, Rounds: *rounds}
	if os.Getenv(p.Kind.Variable()) == "" {
		server, err := p.Start(ctx, dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Close()) }()
		t.Crash = server.Crash
	}
	postgres, err := localpg.Start(ctx, localpg.Output(os.Stderr))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, postgres.Close()) }()
	t.Database = postgres.URL
	t.Env = []string{"ONCEBOX_SCHEMA=public"} // what reads the evidence names all tables without a schema
	db, err := config.OpenDB(ctx, config.Config{DatabaseURL: postgres.URL})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	t.DB = db
	if t.Wire, err = p.Watch(ctx); err != nil {
		return fmt.Errorf("make ready to read the wire: %w", err)
	}
	report, err := t.Run(ctx)
	if err != nil {
		return err
	}
	fmt.Println(report)
	return report.Err()
}
