package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
	"github.com/oncebox/oncebox/uow"
)

// openAPI writes events at an even rate, one per transaction.
func (p part) openAPI(_ context.Context, seen *record, start <-chan struct{}) (role, error) {
	s := &schema{dsn: p.DSN, name: p.Schema}
	db, err := s.bun(pgx.QueryExecModeExec, latencyWriters+2)
	if err != nil {
		return role{}, err
	}
	registry := event.NewRegistry()
	event.Register[moneyMoved](registry)
	store := outbox.NewStore(db, &outbox.Config{Schema: p.Schema, PollOnly: p.PollOnly})
	session := &onceboxSession{db: db, units: uow.New(db, &uow.Config{Registry: registry, Source: source}, store)}
	return role{close: db.Close, run: func(ctx context.Context) error {
		return p.write(ctx, seen, start, session, func(context.Context, string, int64) error { return nil })
	}}, nil
}

// write commits the events, each when it is due, whatever became of those before it, and has each sent by its writer.
func (p part) write(ctx context.Context, seen *record, start <-chan struct{}, s session,
	send func(ctx context.Context, id string, version int64) error,
) error {
	select {
	case <-start:
	case <-ctx.Done():
		return nil
	}
	begin, interval := time.Now(), time.Second/time.Duration(p.Rate)
	group, ctx := errgroup.WithContext(ctx)
	for writer := range latencyWriters {
		group.Go(func() error {
			for i := writer; i < p.events(); i += latencyWriters {
				select {
				case <-time.After(time.Until(begin.Add(time.Duration(i) * interval))):
				case <-ctx.Done():
					return ctx.Err()
				}
				id, version := accountID(i%latencyAccounts), int64(i/latencyAccounts)+storedVersion
				if err := s.transact(ctx, id, version, version, 1); err != nil {
					return err
				}
				seen.note(&seen.Committed, id, version+1)
				if err := send(ctx, id, version+1); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func (p part) connect(ctx context.Context) (*pulsar.Broker, error) {
	return pulsar.Connect(ctx, &pulsar.Config{
		URL: p.Pulsar, AdminURL: p.Admin, Namespace: p.Namespace, Topics: []string{accountType}, Partitions: partitions,
	})
}

// openProjector relays with the default settings.
func (p part) openProjector(ctx context.Context, seen *record, _ <-chan struct{}) (role, error) {
	s := &schema{dsn: p.DSN, name: p.Schema}
	db, err := s.bun(pgx.QueryExecModeExec, 20)
	if err != nil {
		return role{}, err
	}
	b, err := p.connect(ctx)
	if err != nil {
		return role{}, errors.Join(err, db.Close())
	}
	relay, err := projector.New(&handing{to: b, seen: seen}, nil,
		outbox.NewStore(db, &outbox.Config{Schema: p.Schema, PollOnly: p.PollOnly}))
	if err != nil {
		return role{}, errors.Join(err, b.Close(), db.Close())
	}
	return role{
		run: relay.Run, endless: true,
		close: func() error { return errors.Join(b.Close(), db.Close()) },
	}, nil
}

// handing notes when the projector hands over a message.
type handing struct {
	to   messaging.Publisher
	seen *record
}

// Publish passes msgs on.
func (h *handing) Publish(ctx context.Context, msgs []event.Envelope) error {
	for i := range msgs {
		h.seen.note(&h.seen.Handed, msgs[i].AggregateID, msgs[i].AggregateVersion)
	}
	return h.to.Publish(ctx, msgs)
}

// linger is how long a consumer that has everything waits for what should not come: a second copy.
const linger = 300 * time.Millisecond

// openConsumer notes when a handler is called. There is no inbox: its transaction comes after the arrival.
func (p part) openConsumer(ctx context.Context, seen *record, _ <-chan struct{}) (role, error) {
	b, err := p.connect(ctx)
	if err != nil {
		return role{}, err
	}
	r, err := b.Subscribe(ctx, messaging.Subscription{Topic: accountType, Name: source})
	if err != nil {
		return role{}, errors.Join(err, b.Close())
	}
	return role{close: b.Close, run: func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		handler := messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
			if seen.note(&seen.Arrived, m.AggregateID, m.AggregateVersion) == p.events() {
				time.AfterFunc(linger, cancel)
			}
			return nil
		})
		return messaging.NewConsumer(r, handler, nil).Run(ctx)
	}}, nil
}
