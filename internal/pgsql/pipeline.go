package pgsql

import (
	"context"
	"database/sql"
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
)

// Send sends the statements of b in the transaction tx, which is open on c: in one round trip, and BEGIN with them if it has been put
// off, where [CanPipeline] says so, else one after the other. Their callbacks are called as in [pgx.BatchResults.Close]. After an error the
// transaction is still open, if the connection is.
func Send(ctx context.Context, c bun.Conn, tx bun.Tx, b *pgx.Batch) error {
	ok, err := SendTogether(ctx, c, b)
	if !ok {
		return oneByOne(ctx, tx.Tx, b)
	}
	return err
}

// SendTogether is [Send] if that is one round trip. ok false: it is not, and nothing was sent.
func SendTogether(ctx context.Context, c bun.Conn, b *pgx.Batch) (ok bool, err error) {
	return onPipeline(c, func(c *conn) error {
		_, err := c.send(ctx, b, false)
		return err
	})
}

// SendCommit is [Send] on a connection that can pipeline, with COMMIT at the end, which the server skips when a statement failed. open says that
// the transaction was not committed and waits for a rollback. Otherwise it is over: a nil error means committed, an error of the server means
// rolled back, and after any other error the outcome is unknown.
func SendCommit(ctx context.Context, c bun.Conn, b *pgx.Batch) (open bool, err error) {
	_, err = onPipeline(c, func(c *conn) (err error) {
		open, err = c.send(ctx, b, true)
		return err
	})
	return open, err
}

// CanPipeline reports whether c can send several statements in one round trip. A connection can if a [Connector] made it without the option
// [BehindPooler].
func CanPipeline(c bun.Conn) bool {
	ok, err := onPipeline(c, func(*conn) error { return nil })
	return ok && err == nil
}

// onPipeline calls fn with the connection, if statements can share a round trip on it. ok is true as well if there is no connection any more.
func onPipeline(c bun.Conn, fn func(*conn) error) (ok bool, err error) {
	rawErr := c.Raw(func(driverConn any) error {
		var of *conn
		if of, ok = driverConn.(*conn); ok && of.pipelines() {
			err = fn(of)
		} else {
			ok = false
		}
		return nil // an error could make database/sql close the connection
	})
	if rawErr != nil {
		return true, rawErr
	}
	return ok, err
}

const (
	// What pgx.Batch.BeginTx queues.
	beginText              = "begin"
	beginReadCommittedText = "begin isolation level read committed"
	commitText             = "commit"
)

// send sends the statements, and COMMIT behind them, in one round trip. open reports whether the transaction is still
// open after an error, so that it has to be rolled back.
func (c *conn) send(ctx context.Context, b *pgx.Batch, commit bool) (open bool, err error) {
	t := c.tx
	if t == nil || t.ended {
		return false, pgerr.ErrEnded
	}
	if err := c.ending.refusal(true); err != nil {
		return true, err
	}
	if err := c.prepare(ctx, b); err != nil {
		return c.open(), err
	}
	if commit {
		// Otherwise an error would not show whether the transaction is over or has not begun.
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
		c.ending.leave(endedByCommit)
	}
	return open, err
}

// committed checks the answer to COMMIT: PostgreSQL rolls back a failed transaction without reporting an error.
func committed(tag pgconn.CommandTag) error {
	if tag.String() != "COMMIT" {
		return pgx.ErrTxCommitRollback
	}
	return nil
}

// open reports whether the server has said that a transaction is open, failed or not.
func (c *conn) open() bool {
	conn := c.Conn()
	return !conn.IsClosed() && conn.PgConn().TxStatus() != 'I'
}

// prepare prepares the statements that the connection has not seen yet. That happens within the transaction, so that a statement that cannot be
// prepared fails it like any other.
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

// forget drops the prepared statements whose tables may have changed since, so that they are prepared anew.
func (c *conn) forget(ctx context.Context, b *pgx.Batch, err error) {
	code := pgerr.Code(err)
	if len(code) != 5 || code[:2] != "0A" && code[:2] != "22" && code[:2] != "26" && code[:2] != "42" {
		return
	}
	for _, q := range b.QueuedQueries {
		if c.Conn().Deallocate(ctx, q.SQL) == nil {
			delete(c.prepared, q.SQL)
		}
	}
}

// oneByOne sends the statements of b one after the other, as the connection sends statements: its pool may stand behind a pooler that it knows of.
// The first error ends it.
func oneByOne(ctx context.Context, tx *sql.Tx, b *pgx.Batch) error {
	for _, q := range b.QueuedQueries {
		s := single{ctx, tx, q}
		if q.Fn == nil {
			if _, err := s.Exec(); err != nil {
				return err
			}
		} else if err := q.Fn(s); err != nil {
			return err
		}
	}
	return nil
}

// single is a statement of a batch. It is sent by itself when its callback asks for the result.
type single struct {
	ctx context.Context //nolint:containedctx // the methods have no parameter for it
	tx  *sql.Tx
	q   *pgx.QueuedQuery
}

// Exec, Query and QueryRow serve the callbacks of a batch on a connection that cannot send several statements at once.
func (s single) Exec() (tag pgconn.CommandTag, err error) {
	result, err := s.tx.ExecContext(s.ctx, s.q.SQL, s.q.Arguments...)
	if err != nil {
		return tag, err
	}
	n, err := result.RowsAffected()
	return pgconn.NewCommandTag(strconv.FormatInt(n, 10)), err // callers read only the number of rows
}

func (s single) Query() (pgx.Rows, error) {
	rows, err := s.tx.QueryContext(s.ctx, s.q.SQL, s.q.Arguments...) //nolint:rowserrcheck // the callback's
	return &singleRows{rows: rows, err: err}, err
}

func (s single) QueryRow() pgx.Row {
	rows, err := s.tx.QueryContext(s.ctx, s.q.SQL, s.q.Arguments...) //nolint:rowserrcheck // singleRow's
	return singleRow{&singleRows{rows: rows, err: err}}
}

func (single) Close() error { return nil }
func (single) Tx() pgx.Tx   { return nil }

// singleRow is the only row of a statement.
type singleRow struct{ rows *singleRows }

func (r singleRow) Scan(dest ...any) error {
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	return errors.Join(r.rows.Scan(dest...), r.rows.rows.Close())
}

// singleRows are rows of database/sql with the methods of pgx that callbacks call.
type singleRows struct {
	pgx.Rows // nil: there are no other methods

	rows *sql.Rows
	err  error // rows is nil
}

func (r *singleRows) Next() bool { return r.rows != nil && r.rows.Next() }

func (r *singleRows) Close() {
	if r.rows != nil {
		_ = r.rows.Close()
	}
}

// Err returns the error of a query that was not sent, if there are no rows.
func (r *singleRows) Err() error {
	if r.rows == nil {
		return r.err
	}
	return r.rows.Err()
}

// Scan reads a row. A nil skips a column, as in pgx.
func (r *singleRows) Scan(dest ...any) error {
	if r.rows == nil {
		return r.err
	}
	for i, d := range dest {
		if d == nil {
			dest[i] = new(any)
		}
	}
	return r.rows.Scan(dest...)
}

// RawValues are copies of the values as text: after sql.RawBytes the row could not be scanned again.
func (r *singleRows) RawValues() [][]byte {
	columns, err := r.rows.Columns()
	if err != nil {
		return nil
	}
	values, dest := make([][]byte, len(columns)), make([]any, len(columns))
	for i := range values {
		dest[i] = &values[i]
	}
	if r.rows.Scan(dest...) != nil {
		return nil
	}
	return values
}
