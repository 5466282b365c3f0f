package pgsql

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Pipeline is a connection whose open transaction can send several statements in one round trip. It is what
// [database/sql.Conn.Raw] hands out for connections of a [Connector].
type Pipeline interface {
	// Send sends the statements, and BEGIN before them if it has been put off. They are prepared on their first use, and
	// their callbacks are called as in [pgx.BatchResults.Close]. After an error the transaction is still open, if the
	// connection is.
	Send(ctx context.Context, b *pgx.Batch) error

	// SendCommit is Send, with COMMIT at the end, which the server skips when a statement failed. open says that the
	// transaction was not committed and waits for a rollback. Otherwise it is over: err nil means committed, an error
	// that the server sent means rolled back, and any other one says nothing about the outcome.
	SendCommit(ctx context.Context, b *pgx.Batch) (open bool, err error)
}

const (
	// What pgx.Batch.BeginTx queues.
	beginText              = "begin"
	beginReadCommittedText = "begin isolation level read committed"
	commitText             = "commit"
)

// Send is described at [Pipeline].
func (c *conn) Send(ctx context.Context, b *pgx.Batch) error {
	_, err := c.send(ctx, b, false)
	return err
}

// SendCommit is described at [Pipeline].
func (c *conn) SendCommit(ctx context.Context, b *pgx.Batch) (open bool, err error) {
	return c.send(ctx, b, true)
}

func (c *conn) send(ctx context.Context, b *pgx.Batch, commit bool) (open bool, err error) {
	t := c.tx
	if t == nil || t.ended {
		return false, ErrEnded
	}
	if err := c.ending.refusal(true); err != nil {
		return true, err
	}
	if err := c.prepare(ctx, b); err != nil {
		return c.open(), err
	}
	if commit {
		// Or an error would not tell whether the transaction is over or has not begun.
		if err := c.begin(ctx); err != nil {
			return c.open(), err
		}
	}
	all := &pgx.Batch{}
	if t.begun == nil {
		all.BeginTx(t.options)
	}
	all.QueuedQueries = append(all.QueuedQueries, b.QueuedQueries...)
	if commit {
		all.Queue(commitText).Exec(committed)
	}
	results := c.Conn().SendBatch(ctx, all)
	err = results.Close()
	if err != nil {
		c.forget(ctx, b, err)
	}
	open = c.open()
	// Nothing was sent at all if a parameter could not be encoded.
	if begun := results.Tx(); begun != nil && open {
		t.begun = pgxTx{t.ctx, begun}
	}
	if t.ended = commit && !open; t.ended {
		c.ending.leave(EndedByCommit)
	}
	return open, err
}

// committed looks at the answer to COMMIT: a transaction that had failed is rolled back, which PostgreSQL does not call
// an error.
func committed(tag pgconn.CommandTag) error {
	if tag.String() != "COMMIT" {
		return pgx.ErrTxCommitRollback
	}
	return nil
}

// open tells whether the server has said that a transaction is open, failed or not.
func (c *conn) open() bool {
	conn := c.Conn()
	return !conn.IsClosed() && conn.PgConn().TxStatus() != 'I'
}

// prepare prepares what the connection has not seen yet, within the transaction: a statement that cannot be prepared
// has to fail it, as any other statement does.
func (c *conn) prepare(ctx context.Context, b *pgx.Batch) error {
	for _, q := range b.QueuedQueries {
		if _, done := c.prepared[q.SQL]; done {
			continue
		}
		if err := c.begin(ctx); err != nil {
			return err
		}
		for _, text := range []string{beginText, beginReadCommittedText, commitText, q.SQL} {
			if _, err := c.Conn().Prepare(ctx, text, text); err != nil {
				return err
			}
		}
		c.prepared[q.SQL] = struct{}{}
	}
	return nil
}

// forget has statements prepared anew whose tables may have changed since.
func (c *conn) forget(ctx context.Context, b *pgx.Batch, err error) {
	code := Code(err)
	if len(code) != 5 || code[:2] != "0A" && code[:2] != "22" && code[:2] != "26" && code[:2] != "42" {
		return
	}
	for _, q := range b.QueuedQueries {
		if c.Conn().Deallocate(ctx, q.SQL) == nil {
			delete(c.prepared, q.SQL)
		}
	}
}
