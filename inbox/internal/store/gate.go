package store

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// Membership says which generation of which read model a handler belongs to.
type Membership struct {
	Model      string
	Generation int64
	Replayed   bool // it handles replayed messages; another handler handles live messages
}

const (
	enterModel = `
SELECT pg_current_xact_id()::text
FROM {schema}.inbox_enter_read_model($1::text, $2::bigint, $3::boolean, $4::uuid, $5::text, $6::text, $7::text, $8::bigint, $9::integer)`

	enterGate = `SELECT FROM {schema}.inbox_gate($1::text, $2::bigint)`

	// storeAside stores a live message until the rebuild has ended, unless it was replayed already. A message that is replayed at this very
	// moment is stored as well: the end of the rebuild drops the messages that were replayed.
	storeAside = `
INSERT INTO {schema}.inbox_parked ({message}, key_lock)
SELECT {message from $3}, $1::bigint
WHERE NOT EXISTS (SELECT FROM {schema}.inbox i
	WHERE i.message_key = $3::uuid AND i.consumer = $2::text AND i.tenant_id = $5::text AND i.source = $6::text)
ON CONFLICT (message_key, consumer, tenant_id, source) DO NOTHING`
)

// gateTable controls which messages of a read model may be handled: only those of the present generation, and no live messages during a
// rebuild.
type gateTable struct{ *Handle }

// Enter passes the gate of a read model and enters the message, in one round trip.
func (t gateTable) Enter(ctx context.Context, u *uow.Unit, id Identity, of *Membership) (Entry, error) {
	n, err := entryTable(t).CountRows(ctx, u, enterModel, of.Model, of.Generation, of.Replayed,
		id.Key.String(), id.Consumer, id.Tenant, id.Source, id.Lock, t.LockMillis())
	switch {
	case err != nil:
		return Duplicate, fmt.Errorf("inbox: enter message %s of read model %s: %w", id.Key, of.Model, Explain(err))
	case Entry(n) > Early:
		return Duplicate, ErrGeneration
	default:
		return Entry(n), nil
	}
}

// Pass prevents a reset of the read model until the end of the transaction. rebuilding reports whether live messages have to wait.
func (t gateTable) Pass(ctx context.Context, tx bun.IDB, of *Membership) (rebuilding bool, err error) {
	n, err := t.SQL.Exec(ctx, tx, enterGate, of.Model, of.Generation)
	if err != nil {
		return false, fmt.Errorf("inbox: pass the gate of read model %s: %w", of.Model, pgerr.Explain(err))
	}
	if n == 0 || of.Replayed && n == 1 {
		return false, ErrGeneration
	}
	return n > 1, nil
}

// SetAside stores a live message until the rebuild has ended.
func (t gateTable) SetAside(ctx context.Context, tx bun.IDB, id Identity, m *messaging.Message, of *Membership) error {
	entered := id.Consumer
	id.Consumer += Aside
	_, err := t.SQL.Exec(ctx, tx, storeAside, append([]any{id.KeyLock(), entered}, MessageArgs(id, m)...)...)
	if err != nil {
		return fmt.Errorf("inbox: set message %s of read model %s aside: %w", id.Key, of.Model, Explain(err))
	}
	return nil
}
