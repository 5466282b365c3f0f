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
	"github.com/oncebox/oncebox/localpg"
	"github.com/oncebox/oncebox/messaging/brokers"
)

// Broker is a broker that a trial may kill.
type Broker interface {
	// Crash kills the broker with SIGKILL and starts it again.
	Crash(ctx context.Context) error
	// Close ends the broker for good.
	Close() error
}

// Main runs a trial on a PostgreSQL of its own, prints the report in one line, and returns the exit code of the program: 1 if anything was lost,
// happened twice or came out of order. start starts a broker and sets its variables, and may use the folder. Without
// it, nil, the broker is that of the variables, and is left alone.
//
//	orders broker=nats orders=6000 ... kills=60 kills_broker=10 lost=0 twice=0 disorder=0 ... wire_duplicates=31 ...
func Main(kind brokers.Kind, start func(ctx context.Context, dir string) (Broker, error)) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, kind, start)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "kills:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, kind brokers.Kind, start func(ctx context.Context, dir string) (Broker, error)) (err error) {
	flags := flag.NewFlagSet("kills", flag.ContinueOnError)
	orders := flags.Int("orders", 6000, "how many orders are placed, at least 600")
	rounds := flags.Int("rounds", 20, "how often api, a projector and a consumer are killed each; the broker is killed in every second round")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "oncebox-kills-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	t := &Trial{Name: kind.Name, Orders: *orders, Rounds: *rounds}
	if start != nil {
		server, err := start(ctx, dir)
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
	db, err := config.OpenDB(ctx, config.Config{DatabaseURL: postgres.URL})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	t.DB = db
	broker, err := kind.Connect(ctx, brokers.Options{Env: config.Env})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	if err := t.Watch(ctx, broker); err != nil {
		return err
	}
	report, err := t.Run(ctx)
	if err != nil {
		return err
	}
	fmt.Println(report)
	return report.Err()
}
