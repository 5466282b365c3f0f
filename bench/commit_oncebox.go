package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// onceboxSession is the transaction as a user of oncebox writes it.
type onceboxSession struct {
	db     *bun.DB
	units  *uow.Manager
	tracer trace.Tracer // makes a span for each transaction, as a service does for requests; nil: none
}

func openOncebox(_ context.Context, s *schema, clients int) (session, error) {
	o, err := openInstrumented(s, clients, nil, nil)
	if err != nil {
		return nil, err
	}
	return o, nil
}

// openInstrumented opens the session with telemetry; nil means without.
func openInstrumented(s *schema, clients int, meters metric.MeterProvider, tracers trace.TracerProvider) (*onceboxSession, error) {
	db, err := s.bun(pgx.QueryExecModeExec, clients)
	if err != nil {
		return nil, err
	}
	registry := event.NewRegistry()
	event.Register[moneyMoved](registry)
	store := outbox.NewStore(db, &outbox.Config{Schema: s.name})
	o := &onceboxSession{db: db, units: uow.New(db, &uow.Config{
		Registry: registry, Source: source, Telemetry: telemetry.Config{MeterProvider: meters, TracerProvider: tracers},
	}, store)}
	return o, nil
}

func (o *onceboxSession) transact(ctx context.Context, id string, balance, version int64, k int) error {
	if o.tracer != nil {
		var span trace.Span
		ctx, span = o.tracer.Start(ctx, "POST /move")
		defer span.End()
	}
	ctx = event.WithMetadata(ctx, metadata())
	return o.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		a := &account{ID: id, Balance: balance + 1, Version: version}
		for range k {
			a.Record(newMoneyMoved(id))
		}
		return u.Save(ctx, a)
	})
}

func (o *onceboxSession) close() { _ = o.db.Close() }
