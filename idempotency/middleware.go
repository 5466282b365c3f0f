package idempotency

import (
	"context"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Middleware has the methods of a [Store] that package httpmw needs besides: statements that share a round trip with BEGIN and COMMIT, a proof of
// the outcome of a COMMIT, and a hint that saves a transaction. Applications have no use for it: their code begins and completes keys by the methods of Store.
type Middleware struct {
	store *Store
	place *pgsql.Place // where the table is
}

// Middleware returns the store as a middleware uses it.
func (s *Store) Middleware() Middleware { return Middleware{store: s} }

func (m Middleware) text(constant string) string {
	if m.place == nil {
		return m.store.run.Text(constant)
	}
	return m.place.Text(constant)
}

var errNotSent = errors.New("idempotency: begin: the statements were not sent")

// Begun is the result of a [Middleware.QueueBegin].
type Begun struct {
	// Response is the stored answer, nil if the key is new.
	Response *Response
	// XID is the id of the transaction (pg_current_xact_id), "" unless the key is new.
	XID string
	// Err is one of the errors of [Store.Begin].
	Err error

	store  *Store
	key    *Key
	fp     *Fingerprint
	locked bool
	found  record
}

// In returns the middleware for a transaction. Without Config.Schema it has to be called before [Middleware.QueueBegin] and
// [Middleware.QueueComplete], which have no connection to ask where the table is.
func (m Middleware) In(ctx context.Context, tx bun.Tx) (Middleware, error) {
	var err error
	m.place, err = m.store.run.In(ctx, tx)
	return m, err
}

// QueueBegin is [Store.Begin] as a part of b: it can share a round trip with BEGIN. The result is valid only after b was sent; if sending fails,
// use that error.
func (m Middleware) QueueBegin(b *pgsql.Batch, key *Key, fp *Fingerprint, opts ...BeginOption) *Begun {
	begun := &Begun{Err: errNotSent, store: m.store, key: key, fp: fp}
	args := lockArgs(key, opts)
	b.Query(begun.readLock, m.text(lock), args...)
	b.Query(begun.readRow, m.text(lookupNew), args[:1:1]...)
	return begun
}

func (b *Begun) readLock(row *pgsql.Result) error { return row.One(&b.locked, nil) }

// readRow takes the row of lookupNew.
func (b *Begun) readRow(rows *pgsql.Result) error {
	for rows.Next() {
		if row := rows.RawValues(); row[0] == nil { // a new key: to read a row of NULLs costs as much as one of values
			b.XID = string(row[len(row)-1])
			continue
		}
		if err := rows.Scan(append(b.found.dest(), nil)...); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	b.Response, b.Err = b.store.begun(b.locked, &b.found, *b.key, *b.fp)
	return nil
}

// QueueComplete is [Store.Complete] as a part of b: it can share a round trip with COMMIT. If somebody else has completed the key in spite of the
// lock, it fails, and the statements after it in b are not executed: see [Middleware.IsTaken].
func (m Middleware) QueueComplete(b *pgsql.Batch, key *Key, fp *Fingerprint, resp *Response) error {
	args, err := m.store.completion(key, fp, resp)
	if err != nil {
		return err
	}
	b.Queue(m.text(complete), args...)
	return nil
}

// IsTaken reports whether PostgreSQL refused to complete a key because somebody else has completed it meanwhile. [Store.Complete] returns that as
// [ErrInProgress], and a batch with a [Middleware.QueueComplete] as the plain error of PostgreSQL.
func (Middleware) IsTaken(err error) bool { return isTaken(err) }

// Completed reports whether the transaction with the id xid ([Begun.XID]) has stored the answer under the key, and so was committed. It compares the
// answer too: after a crash of the server another request with the key may have got the same id.
func (m Middleware) Completed(ctx context.Context, db bun.IDB, key Key, resp Response, xid string) (bool, error) {
	headers, body, omitted, err := resp.columns()
	if err != nil {
		return false, err
	}
	var found bool
	if err := m.store.run.QueryRow(ctx, db, completed, []any{key.hash[:], xid, resp.Status, headers, body, omitted}, &found); err != nil {
		return false, fmt.Errorf("idempotency: look for the answer of key %s: %w", key, pgerr.Explain(err))
	}
	return found, nil
}

// SeenRecently reports whether this store has lately found a row for the key, or got it by [Middleware.MarkSeen], so that a [Store.Lookup] is
// likely to find it. It is a hint that may be wrong, and costs nothing.
func (m Middleware) SeenRecently(key Key) bool { return m.store.recent.has(key) }

// MarkSeen records that the transaction that completed the key was committed, for [Middleware.SeenRecently].
func (m Middleware) MarkSeen(key Key) { m.store.recent.mark(key) }
