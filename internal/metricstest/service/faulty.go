package service

import (
	"context"
	"errors"
	"sync"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar"
)

// faulty is a broker that fails in a way that the event's type chooses. It also simulates other faults
// while it publishes.
type faulty struct {
	*pulsar.Broker

	db   *bun.DB
	said sync.Map // faults that have occurred already
}

func (b *faulty) first(what string) bool {
	_, already := b.said.LoadOrStore(what, true)
	return !already
}

func (b *faulty) Publish(ctx context.Context, msgs []event.Envelope) error {
	for i, m := range msgs {
		switch {
		case m.Type == "refused" && b.first("refused"):
			return &messaging.PublishError{Failed: map[int]error{i: errors.New("not now")}}
		case m.Type == "refused":
			return &messaging.PublishError{Failed: map[int]error{i: messaging.Permanent(errors.New("no schema"))}}
		case m.Type == "unconfirmed" && b.first("unconfirmed"):
			return messaging.ErrBrokerDown
		case m.Type == "fenced" && b.first("fenced"): // makes another projector take the lanes over
			if _, err := b.db.ExecContext(ctx, "UPDATE outbox_lane SET owner = 'nobody', lease_until = '-infinity', epoch = epoch + 1"); err != nil {
				return err
			}
		}
	}
	return b.Broker.Publish(ctx, msgs)
}
