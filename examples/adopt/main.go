// Command adopt shows the way from an outbox table that a service has already to oncebox, for six kinds of tables. It starts a PostgreSQL of its own,
// lets old code write the table, and takes the steps of the guides in docs/migrating: adopt runs, rows are forwarded, old and new code write together,
// old code ends. Then it counts what has arrived.
//
//	go run -C examples/adopt . river
//
// The names are handwritten, debezium, watermill, river, oagudo and masstransit.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/localpg"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "adopt:", err)
		os.Exit(1) //nolint:gocritic // the deferred stop does nothing any more
	}
}

func run(ctx context.Context, args []string) (err error) {
	name := "handwritten"
	if len(args) > 0 {
		name = args[0]
	}
	shape, err := shapeOf(name)
	if err != nil {
		return err
	}
	postgres, err := localpg.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, postgres.Close()) }()
	site, err := openSite(ctx, postgres.URL)
	if err != nil {
		return err
	}
	defer site.close()
	w := &way{shape: shape, site: site, box: "oncebox", schema: "public", say: func(format string, args ...any) { fmt.Printf(format+"\n", args...) }}
	r, err := w.walk(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%d events: lost %d, twice %d, out of order %d\n", r.Events, r.Lost, r.Twice, r.OutOfOrder)
	return nil
}

// openSite opens the pools of a service: that of its bun and its database/sql, and that of pgx.
func openSite(ctx context.Context, url string) (*site, error) {
	db, err := config.OpenDB(ctx, config.Config{DatabaseURL: url})
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &site{db, pool}, nil
}

func (s *site) close() {
	s.pool.Close()
	_ = s.db.Close()
}
