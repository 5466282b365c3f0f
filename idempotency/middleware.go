package idempotency

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// Middleware is what package httpmw does with a [Store] beside what all do: statements that share a round trip with BEGIN and COMMIT, a
// proof of the outcome of a COMMIT, and a hint that spares a transaction. An application needs it only if it writes a middleware of its own.
type Middleware struct {
	*Store

	place *pgsql.Place // where the table is
}

// Middleware returns the store as a middleware uses it.
func (s *Store) Middleware() Middleware { return Middleware{Store: s} }

func (m Middleware) text(constant string) string {
	if m.place == nil {
		return m.run.Text(constant)
	}
	return m.place.Text(constant)
}

var errNotSent = errors.New("idempotency: begin: the statements were not sent")

// Begun is what came of a [Middleware.QueueBegin].
type Begun struct {
	// Response is the stored answer, nil if the key is new.
	Response *Response
	// XID is the id of the transaction (pg_current_xact_id), "" unless the key is new.
	XID string
	// Err is one of those of [Store.Begin].
	Err error
}

// In returns the middleware for a transaction. Without Config.Schema it has to be called before [Middleware.QueueBegin] and
// [Middleware.QueueComplete], which have no connection to ask where the table is.
func (m Middleware) In(ctx context.Context, tx bun.Tx) (Middleware, error) {
	var err error
	m.place, err = m.run.In(ctx, tx)
	return m, err
}

// QueueBegin is [Store.Begin] as a part of b: it can share a round trip with BEGIN. The result is there when b was sent, and
// only then; an error of sending counts more.
func (m Middleware) QueueBegin(b *pgx.Batch, key Key, fp Fingerprint, opts ...BeginOption) *Begun {
	result := &Begun{Err: errNotSent}
	var locked bool
	b.Queue(m.text(lock), lockArgs(key, opts)...).QueryRow(func(row pgx.Row) error { return row.Scan(&locked, nil) })
	b.Queue(m.text(lookupNew), key.hash[:]).Query(func(rows pgx.Rows) error {
		var found record
		for rows.Next() {
			if row := rows.RawValues(); row[0] == nil { // a new key: to read a row of NULLs costs as much as one of values
				result.XID = string(row[len(row)-1])
				continue
			}
			if err := rows.Scan(append(found.dest(), nil)...); err != nil {
				return err
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		result.Response, result.Err = m.begun(locked, &found, key, fp)
		return nil
	})
	return result
}

// QueueComplete is [Store.Complete] as a part of b: it can share a round trip with COMMIT. If somebody else completed the key in
// spite of the lock, it fails, and what is behind it in b is not executed: see [Middleware.IsTaken].
func (m Middleware) QueueComplete(b *pgx.Batch, key Key, fp Fingerprint, resp Response) error {
	args, err := m.completion(key, fp, resp)
	if err != nil {
		return err
	}
	b.Queue(m.text(complete), args...)
	return nil
}

// IsTaken reports whether err is PostgreSQL's answer to the completion of a key that somebody else has completed meanwhile: what [Store.Complete]
// returns as [ErrInProgress], and a batch with a [Middleware.QueueComplete] as it is.
func (Middleware) IsTaken(err error) bool { return isTaken(err) }

// CompleteProbe is [Store.Complete] and returns the id of the transaction (pg_current_xact_id), for [Middleware.Completed].
func (m Middleware) CompleteProbe(ctx context.Context, tx bun.IDB, key Key, fp Fingerprint, resp Response) (xid string, err error) {
	args, err := m.completion(key, fp, resp)
	if err != nil {
		return "", err
	}
	if err := m.confirmed.QueryRow(ctx, tx, completeProbe, args, &xid); err != nil {
		return "", completionError(key, err)
	}
	return xid, nil
}

// Completed reports whether the transaction with the id xid has stored the answer under the key, which it then has committed. It has to be the very
// answer: after a crash of the server another request with the key may have got the same id.
func (m Middleware) Completed(ctx context.Context, db bun.IDB, key Key, resp Response, xid string) (bool, error) {
	headers, body, omitted, err := resp.columns()
	if err != nil {
		return false, err
	}
	var found bool
	if err := m.run.QueryRow(ctx, db, completed, []any{key.hash[:], xid, resp.Status, headers, body, omitted}, &found); err != nil {
		return false, fmt.Errorf("idempotency: look for the answer of key %s: %w", key, pgsql.Explain(err))
	}
	return found, nil
}

// SeenRecently reports whether this store has lately found a row for the key, or was told of one by [Middleware.MarkSeen], so that a [Store.Lookup]
// is likely to find it. It is a hint without any promise, and costs nothing.
func (m Middleware) SeenRecently(key Key) bool { return m.recent.has(key) }

// MarkSeen says that the transaction that completed the key was committed, for [Middleware.SeenRecently].
func (m Middleware) MarkSeen(key Key) { m.recent.mark(key) }
