package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverPeer is river: an event is a job, whose worker publishes it. The settings are those of its own benchmark.
type riverPeer struct {
	schema string
	pool   *pgxpool.Pool
	insert *river.Client[pgx.Tx]
}

// riverJob is an event.
type riverJob struct {
	delivery

	Body json.RawMessage `json:"body"`
}

// Kind names the type.
func (riverJob) Kind() string { return moneyMoved{}.EventType() }

// riverWorker publishes.
type riverWorker struct {
	river.WorkerDefaults[riverJob]

	to *sink
}

// Work publishes one event.
func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverJob]) error {
	d := job.Args.delivery
	d.Payload = job.Args.Body
	return w.to.deliver(ctx, d)
}

func openRiver(ctx context.Context, s *schema, conns int) (peer, error) {
	pool, err := s.pgx(ctx, conns)
	if err != nil {
		return nil, err
	}
	p := &riverPeer{schema: s.name, pool: pool}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: s.name, Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err == nil {
		p.insert, err = p.client(&river.Config{})
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return p, nil
}

func (p *riverPeer) client(cfg *river.Config) (*river.Client[pgx.Tx], error) {
	cfg.Schema, cfg.Logger = p.schema, slog.New(slog.DiscardHandler)
	return river.NewClient(riverpgxv5.New(p.pool), cfg)
}

func (p *riverPeer) transact(ctx context.Context, id string, balance, version int64, k int) error {
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		if err := moveByHand(ctx, tx, id, balance, version, k); err != nil {
			return err
		}
		body, err := newMoneyMoved(id).encode()
		if err != nil {
			return err
		}
		_, err = p.insert.InsertTx(ctx, tx, riverJob{delivery{Account: id, Version: version}, body}, nil)
		return err
	})
}

func (p *riverPeer) record(ctx context.Context, events []delivery) error {
	jobs := make([]river.InsertManyParams, len(events))
	for i, d := range events {
		jobs[i].Args = riverJob{d, d.Payload}
	}
	_, err := p.insert.InsertManyFast(ctx, jobs)
	return err
}

func (p *riverPeer) relay(ctx context.Context, to *sink) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{to: to})
	c, err := p.client(&river.Config{
		Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}},
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	if err := c.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	return c.Stop(context.WithoutCancel(ctx))
}

func (p *riverPeer) left(ctx context.Context) (n int, err error) {
	err = p.pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state <> 'completed'").Scan(&n)
	return n, err
}

func (p *riverPeer) close() { p.pool.Close() }
