package devenv

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// Servers is a running PostgreSQL and a running Pulsar.
type Servers struct {
	Postgres *PostgresServer
	Pulsar   *PulsarServer
}

// Start finds or starts both servers at the same time. The caller stops them.
func Start(ctx context.Context, options *Options) (*Servers, error) {
	s := &Servers{}
	start, startCtx := errgroup.WithContext(ctx)
	start.Go(func() (err error) {
		s.Postgres, err = Postgres(startCtx, options)
		return err
	})
	start.Go(func() (err error) {
		s.Pulsar, err = Pulsar(startCtx, options)
		return err
	})
	if err := start.Wait(); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// Env returns variables with the addresses, for other processes.
func (s *Servers) Env() []string {
	return []string{"DATABASE_URL=" + s.Postgres.URL, "PULSAR_URL=" + s.Pulsar.URL, "PULSAR_ADMIN_URL=" + s.Pulsar.AdminURL}
}

// Stop stops the servers that were started.
func (s *Servers) Stop() (err error) {
	if s.Postgres != nil {
		err = s.Postgres.Stop()
	}
	if s.Pulsar != nil {
		err = errors.Join(err, s.Pulsar.Stop())
	}
	return err
}
