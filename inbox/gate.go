package inbox

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// membership makes a handler one of a generation of a read model.
type membership struct {
	model      string
	generation int64
	replayed   bool // it handles what is replayed, and the other one what is live
}

const (
	enterModel = `
SELECT pg_current_xact_id()::text
FROM {schema}.inbox_enter_read_model($1::text, $2::bigint, $3::boolean, $4::uuid, $5::text, $6::text, $7::text, $8::bigint, $9::integer)`

	enterGate = `SELECT FROM {schema}.inbox_gate($1::text, $2::bigint)`

	// storeAside keeps a live message, unless it was replayed already. A rebuild that replays it in this moment does not look here:
	// what was replayed is dropped when all was.
	storeAside = `
INSERT INTO {schema}.inbox_parked (` + store.MessageColumns + `, key_lock, attempts, error_message)
SELECT ` + store.MessageValues + `
WHERE NOT EXISTS (SELECT FROM {schema}.inbox i
	WHERE i.message_key = $1::uuid AND i.consumer = $23::text AND i.tenant_id = $3::text AND i.source = $4::text)
ON CONFLICT (message_key, consumer, tenant_id, source) DO NOTHING`
)

// enter is that of the inbox, behind the gate if the handler is one of a read model. It is one round trip in any case.
func (w *wrapped) enter(ctx context.Context, u *uow.Unit, id store.Identity) (store.Entry, error) {
	if w.of == nil {
		return w.box.table.Entries.Enter(ctx, u, id)
	}
	n, err := w.box.table.Entries.CountRows(ctx, u, enterModel, w.of.model, w.of.generation, w.of.replayed,
		id.Key.String(), id.Consumer, id.Tenant, id.Source, id.Lock, w.box.store.LockMillis())
	switch {
	case err != nil:
		return store.Duplicate, fmt.Errorf("inbox: enter message %s of read model %s: %w", id.Key, w.of.model, store.Explain(err))
	case store.Entry(n) > store.Early:
		return store.Duplicate, store.ErrGeneration
	default:
		return store.Entry(n), nil
	}
}

// gate keeps a reset of the read model out until the end of the transaction. rebuilding says that live messages wait.
func (w *wrapped) gate(ctx context.Context, tx bun.IDB) (rebuilding bool, err error) {
	if w == nil || w.of == nil {
		return false, nil
	}
	n, err := w.box.store.SQL.Exec(ctx, tx, enterGate, w.of.model, w.of.generation)
	if err != nil {
		return false, fmt.Errorf("inbox: pass the gate of read model %s: %w", w.of.model, pgsql.Explain(err))
	}
	if n == 0 || w.of.replayed && n == 1 {
		return false, store.ErrGeneration
	}
	return n > 1, nil
}

// gateOf is the gate of a consumer whose parked messages are handled.
func (i *Inbox) gateOf(ctx context.Context, tx bun.IDB, consumer string) error {
	_, err := i.handlerOf(consumer, "").gate(ctx, tx)
	return err
}

// setAside has a live message wait.
func (w *wrapped) setAside(ctx context.Context, tx bun.IDB, id store.Identity, m *messaging.Message) error {
	entered := id.Consumer
	id.Consumer += store.Aside
	args, err := store.MessageArgs(id, m, 0, "")
	if err == nil {
		_, err = w.box.store.SQL.Exec(ctx, tx, storeAside, append(args, entered)...)
	}
	if err != nil {
		return fmt.Errorf("inbox: set message %s of read model %s aside: %w", id.Key, w.of.model, store.Explain(err))
	}
	return nil
}
