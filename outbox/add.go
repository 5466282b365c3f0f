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

// Add stores one event in the caller's own transaction and returns its id, or that of the earlier event that it repeats by
// [event.WithDedupKey]. payload may be an [event.Event], json.RawMessage, []byte, or anything that can be encoded as JSON.
// What is wrong with it is reported before anything is sent: the transaction can go on.
//
// The event exists when the caller has committed. Call [Store.Wake] then, and not before, to have it published at once; without
// that it leaves at the next poll.
//
// [Store.AddSQL] and [Store.AddPgx] are Add for the transactions of database/sql and of pgx. A pool cannot be passed to
// any of them: what is stored through a pool is committed by itself, whether the data is or not.
//
// Several events of a transaction are for [Store.AddAll], which sorts the locks of their ordering keys. Those of several calls of Add are not
// sorted, so that two transactions could deadlock. PostgreSQL then fails one of them with the code 40P01: run it again.
func (s *Store) Add(ctx context.Context, tx bun.Tx, topic string, payload any, opts ...event.AddOption) (id string, err error) {
	h, err := s.box.Within(tx)
	if err != nil {
		return "", err
	}
	return s.add(ctx, h, topic, payload, opts)
}

// AddSQL is [Store.Add] for a transaction of database/sql, which is also what GORM, ent and sqlx have beneath theirs. The driver of
// its pool has to be pgx (github.com/jackc/pgx/v5/stdlib).
func (s *Store) AddSQL(ctx context.Context, tx *sql.Tx, topic string, payload any, opts ...event.AddOption) (id string, err error) {
	return s.Add(ctx, bun.Tx{Tx: tx}, topic, payload, opts...)
}

// AddPgx is [Store.Add] for a transaction of pgx, also one of a pgxpool.Pool, or a savepoint within one. The statements are sent in the
// mode of the connection (pgx.ConnConfig.DefaultQueryExecMode), unless Config.Pooler says that nothing may be prepared.
func (s *Store) AddPgx(ctx context.Context, tx pgx.Tx, topic string, payload any, opts ...event.AddOption) (id string, err error) {
	h, err := s.box.WithinPgx(tx)
	if err != nil {
		return "", err
	}
	return s.add(ctx, h, topic, payload, opts)
}

// Envelope returns the event that [Store.Add] would store of a draft, or the error with which Add would refuse the draft. It stores nothing. Pass the
// event to [Store.Flush], and to [Store.Committed] after COMMIT.
func (s *Store) Envelope(ctx context.Context, d Draft) (event.Envelope, error) {
	return s.maker.Payload(ctx, d.Topic, d.Payload, d.Options)
}

func (s *Store) add(ctx context.Context, h outboxdb.Conn, topic string, payload any, opts []event.AddOption) (id string, err error) {
	env, err := s.maker.Payload(ctx, topic, payload, opts)
	if err != nil {
		return "", fmt.Errorf("outbox: Add: %w", err)
	}
	evs := []event.Envelope{env}
	xid, err := s.flush(ctx, h, evs)
	if err != nil {
		return "", err
	}
	s.recorded.added(xid, evs)
	return evs[0].ID, nil
}

// Draft is an event as [Store.Add] takes it: its topic, its payload and what else is known of it.
type Draft struct {
	Topic   string
	Payload any
	Options []event.AddOption
}

// AddAll stores several events in the caller's own transaction, in one round trip, and returns their ids in the order
// of the drafts. Each draft is handled as [Store.Add] handles its event; events of one ordering key leave in the order
// of the drafts. If one of them cannot be carried, the error names its index, and nothing is sent: the transaction can
// go on. Without drafts it does nothing.
//
// The locks of all ordering keys are taken in one order, which is the same in each transaction. So two
// transactions that call AddAll once do not deadlock, whatever keys they share. Two calls in one
// transaction have an order each, as two calls of Add have.
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
