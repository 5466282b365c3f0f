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
