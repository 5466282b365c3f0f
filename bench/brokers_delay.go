package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
	"github.com/oncebox/oncebox/uow"
)

// brokersRate is the rate at which delays are measured, in events per second.
const brokersRate = 100

// withAccounts runs fn in a schema with the accounts that writers change.
func (b *brokersBench) withAccounts(ctx context.Context, fn func(*schema, part) error) error {
	return withSchema(ctx, b.dsn, func(s *schema) error {
		if err := s.exec(ctx, fmt.Sprintf(createAccounts, latencyAccounts-1), storeAccounts, createFloor); err != nil {
			return err
		}
		versions := max(1, brokersRate*(b.seconds+int(latencyWarmUp.Seconds()))/latencyAccounts)
		return fn(s, part{DSN: b.dsn, Schema: s.name, Rate: brokersRate, Versions: versions})
	})
}

// begun is a start signal that was given.
func begun() <-chan struct{} {
	start := make(chan struct{})
	close(start)
	return start
}

// sendByHand commits by pgx, and publishes each message after its commit.
func (b *brokersBench) sendByHand(ctx context.Context, site brokerSite, seen *record) error {
	return b.withAccounts(ctx, func(s *schema, p part) (err error) {
		session, err := openPgx(ctx, s, latencyWriters)
		if err != nil {
			return err
		}
		defer session.close()
		h, err := site.byHand(ctx, accountType, b.sample)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, h.close()) }()
		var n atomic.Int64
		return p.write(ctx, seen, begun(), session, func(ctx context.Context, id string, version int64) error {
			if err := h.send(ctx, int(n.Add(1))%len(b.sample)); err != nil {
				return err
			}
			seen.note(&seen.Handed, id, version)
			return nil
		})
	})
}

// sendByRelay commits by units of work, and a projector publishes.
func (b *brokersBench) sendByRelay(ctx context.Context, site brokerSite, seen *record) error {
	return b.withAccounts(ctx, func(s *schema, p part) (err error) {
		db, err := s.bun(pgx.QueryExecModeExec, latencyWriters+20)
		if err != nil {
			return err
		}
		defer db.Close()
		out, err := openAdapted(ctx, site, backlog{topic: accountType})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, out.close(ctx)) }()
		registry := event.NewRegistry()
		event.Register[moneyMoved](registry)
		store := outbox.NewStore(db, &outbox.Config{Schema: s.name})
		session := &onceboxSession{db: db, units: uow.New(db, &uow.Config{Registry: registry, Source: source}, store)}

		ctx, cancel := context.WithTimeout(ctx, time.Duration(b.seconds)*time.Second+latencyWarmUp+time.Minute)
		defer cancel()
		relay, err := projector.New(&receiving{to: out, seen: seen, want: p.events(), done: cancel}, nil, store)
		if err != nil {
			return err
		}
		written := make(chan error, 1)
		go func() {
			err := p.write(ctx, seen, begun(), session, func(context.Context, string, int64) error { return nil })
			if err != nil {
				cancel()
			}
			written <- err
		}()
		err = errors.Join(relay.Run(ctx), <-written)
		if n := len(seen.Handed); err == nil && n < p.events() {
			err = fmt.Errorf("%w: %d of %d events have their receipts", errWrong, n, p.events())
		}
		return err
	})
}

// receiving notes when a message has its receipt, and calls done when all have it.
type receiving struct {
	to   messaging.Publisher
	seen *record
	want int
	done func()
}

// Publish passes msgs on.
func (r *receiving) Publish(ctx context.Context, msgs []event.Envelope) error {
	err := r.to.Publish(ctx, msgs)
	if err != nil {
		return err
	}
	for i := range msgs {
		if r.seen.note(&r.seen.Handed, msgs[i].AggregateID, msgs[i].AggregateVersion) == r.want {
			r.done()
		}
	}
	return nil
}
