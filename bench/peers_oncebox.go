package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
)

// onceboxPeer is oncebox with its defaults.
type onceboxPeer struct {
	session
	db    *bun.DB
	store *outbox.Store
}

func openOnceboxPeer(ctx context.Context, s *schema, conns int) (peer, error) {
	one, err := openOncebox(ctx, s, conns)
	if err != nil {
		return nil, err
	}
	db, err := s.bun(pgx.QueryExecModeExec, conns)
	if err != nil {
		return nil, err
	}
	return &onceboxPeer{session: one, db: db, store: outbox.NewStore(db, &outbox.Config{Schema: s.name})}, nil
}

func (p *onceboxPeer) record(ctx context.Context, events []delivery) error {
	unit := make([]event.Envelope, len(events))
	for i, d := range events {
		var err error
		if unit[i], err = envelopeOf("bench-peers", d.Account, d.Version, d.Payload); err != nil {
			return err
		}
	}
	return p.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error { return p.store.Flush(ctx, tx, unit) })
}

func (p *onceboxPeer) relay(ctx context.Context, to *sink) (err error) {
	publisher, done, err := to.publisher(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	relay, err := projector.New(publisher, &projector.Config{}, p.store)
	if err != nil {
		return err
	}
	return relay.Run(ctx)
}

func (p *onceboxPeer) left(ctx context.Context) (n int, err error) {
	err = p.db.DB.QueryRowContext(ctx, "SELECT (SELECT count(*) FROM outbox_unsent) + (SELECT count(*) FROM outbox_held)").Scan(&n)
	return n, err
}

func (p *onceboxPeer) close() {
	p.session.close()
	_ = p.db.Close()
}
