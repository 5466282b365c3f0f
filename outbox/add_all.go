package outbox

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// Draft is an event as [Store.Add] takes it: its topic, its payload and what else is known of it.
type Draft struct {
	Topic   string
	Payload any
	Options []event.AddOption
}

// AddAll stores several events in the caller's own transaction, in one round trip, and returns their ids in the order of the drafts. Each draft
// is handled as [Store.Add] handles its event; events of one ordering key leave in the order of the drafts. If one of them cannot be carried,
// the error names its index, and nothing is sent: the transaction can go on. No drafts are no error.
//
// The locks of all ordering keys are taken in one order, which is the same in each transaction. So two transactions that call AddAll once do
// not deadlock, whatever keys they share. Two calls in one transaction have an order each, as two calls of Add have.
//
// [Store.AddAllSQL] and [Store.AddAllPgx] are AddAll for the transactions of database/sql and of pgx.
func (s *Store) AddAll(ctx context.Context, tx bun.Tx, drafts ...Draft) (ids []string, err error) {
	h, err := s.box.Within(tx)
	if err != nil {
		return nil, err
	}
	return s.addAll(ctx, h, drafts)
}

// AddAllSQL is [Store.AddAll] for a transaction of database/sql, as [Store.AddSQL] is Add.
func (s *Store) AddAllSQL(ctx context.Context, tx *sql.Tx, drafts ...Draft) (ids []string, err error) {
	return s.AddAll(ctx, bun.Tx{Tx: tx}, drafts...)
}

// AddAllPgx is [Store.AddAll] for a transaction of pgx, as [Store.AddPgx] is Add.
func (s *Store) AddAllPgx(ctx context.Context, tx pgx.Tx, drafts ...Draft) (ids []string, err error) {
	h, err := s.box.WithinPgx(tx)
	if err != nil {
		return nil, err
	}
	return s.addAll(ctx, h, drafts)
}

func (s *Store) addAll(ctx context.Context, h outboxdb.Conn, drafts []Draft) ([]string, error) {
	evs := make([]event.Envelope, len(drafts))
	for i, d := range drafts {
		var err error
		if evs[i], err = s.maker.Payload(ctx, d.Topic, d.Payload, d.Options); err != nil {
			return nil, fmt.Errorf("outbox: AddAll: draft %d: %w", i, err)
		}
	}
	xid, err := s.flush(ctx, h, evs)
	if err != nil {
		return nil, err
	}
	s.recorded.added(xid, evs)
	ids := make([]string, len(evs))
	for i := range evs {
		ids[i] = evs[i].ID
	}
	return ids, nil
}
