package main

import (
	"context"
	"errors"

	"github.com/oncebox/oncebox/internal/devenv"
)

// withPostgres runs fn on the server of the environment, or on a server that is started for it.
func withPostgres(ctx context.Context, fn func(dsn string) error) (err error) {
	server, err := devenv.Postgres(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	return fn(server.URL)
}

// withServers runs fn on PostgreSQL and on Pulsar, ready to be relayed to.
func withServers(ctx context.Context, fn func(r *relayBench) error) error {
	return withPostgres(ctx, func(dsn string) error {
		r := &relayBench{dsn: dsn}
		done, err := r.connect(ctx)
		if err != nil {
			return err
		}
		defer done()
		return fn(r)
	})
}
