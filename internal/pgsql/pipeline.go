package pgsql

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
)

// Send sends the statements of b in the transaction tx, which is open on c: in one round trip, and BEGIN with them if it has been put
// off, where [CanPipeline] says so, else one after the other. Results are read in the order of the statements, up to the first error. After an error the
// transaction is still open, if the connection is.
func Send(ctx context.Context, c bun.Conn, tx bun.Tx, b *Batch) error {
	ok, err := SendTogether(ctx, c, b)
	if !ok {
		return b.oneByOne(ctx, tx.Tx)
	}
	return err
}

// SendTogether is [Send] if that is one round trip. ok false: it is not, and nothing was sent.
func SendTogether(ctx context.Context, c bun.Conn, b *Batch) (ok bool, err error) {
	return onPipeline(c, func(c *conn) error {
		_, _, err := c.send(ctx, b, false)
		return err
	})
}

// SendCommit is [Send] on a connection that can pipeline, with COMMIT at the end, which the server skips when a statement failed. open says that
// the transaction was not committed and waits for a rollback. Otherwise it is over: a nil error means committed, an error of the server means
// rolled back, and after any other error the outcome is unknown.
func SendCommit(ctx context.Context, c bun.Conn, b *Batch) (open bool, err error) {
	_, err = onPipeline(c, func(c *conn) (err error) {
		_, open, err = c.send(ctx, b, true)
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
	commitText = "commit"
	commitTag  = "COMMIT" // the answer to it
)

// beginText has the text of a BEGIN that was put off, by its isolation level.
var beginText = map[pgx.TxIsoLevel]string{"": "begin", pgx.ReadCommitted: "begin isolation level read committed"} //nolint:gochecknoglobals // a constant

// send sends the statements, and COMMIT behind them, in one round trip. last is the answer to the last statement. open reports whether the transaction
// is still open after an error, so that it has to be rolled back.
func (c *conn) send(ctx context.Context, b *Batch, commit bool) (last pgconn.CommandTag, open bool, err error) {
	t := c.tx
	if t == nil || t.ended {
		return last, false, pgerr.ErrEnded
	}
	if err := c.ending.refusal(true); err != nil {
		return last, true, err
	}
	// A connection that is closed or busy sends nothing, and its deadline is one of pgx.
	if b.Within > 0 && !c.Conn().IsClosed() && !c.Conn().PgConn().IsBusy() {
		end := time.Now().Add(b.Within)
		c.expire(end)
		defer func() { err = c.answered(b.Within, end, err) }()
	}
	if err := c.prepare(ctx, b, commit); err != nil {
		return last, c.open(), err
	}
	if commit {
		// Otherwise an error would not show whether the transaction is over or has not begun.
		if err := c.begin(ctx); err != nil {
			return last, c.open(), err
		}
	}
	trip := &c.trip
	*trip = roundTrip{conn: c}
	defer func() { *trip = roundTrip{} }() // the messages can be large
	if t.begun == nil {
		trip.add(beginText[t.options.IsoLevel], nil)
	}
	for i := range b.statements {
		trip.add(b.statements[i].text, b.statements[i].args)
	}
	if commit {
		trip.add(commitText, nil)
	}
	last, err = trip.make(ctx, b, t.begun == nil, commit)
	if err != nil {
		c.forget(ctx, b, err)
	}
	open = c.open()
	// Nothing was sent at all if a parameter could not be encoded.
	if t.begun == nil && open {
		t.begun = c.Conn()
	}
	if t.ended = commit && !open; t.ended {
		c.ending.leave(endedByCommit)
	}
	return last, open, err
}

// expire sets the time at which the connection gives up what it reads or writes. A context with a deadline would do the same, but it costs a timer and
// a context, and pgx watches it: for a COMMIT that nothing else can cancel, these are ten objects.
func (c *conn) expire(at time.Time) { _ = c.Conn().PgConn().Conn().SetDeadline(at) }

// answered ends what expire has begun. err is the error of the round trip. A closed connection keeps its deadline: pgx sets one of its own before it
// says goodbye.
func (c *conn) answered(limit time.Duration, end time.Time, err error) error {
	if !c.Conn().IsClosed() {
		c.expire(time.Time{})
		return err
	}
	if !time.Now().Before(end) { // also if err is an earlier one: the connection was given up, and not lost
		TroubleOf(c.Conn()).cancelled.Store(true)
	}
	// Only the end of the deadline has this error. The kernel's own timeouts have another one, and if a context has ended, pgx returns its error.
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%s: %w: %w", unanswered(limit), context.DeadlineExceeded, err)
	}
	return err
}

// committed returns the error of COMMIT. PostgreSQL rolls back a failed transaction without reporting an error: the answer says so.
func committed(answer pgconn.CommandTag, err error) error {
	if err == nil && answer.String() != commitTag {
		return pgx.ErrTxCommitRollback
	}
	return err
}

// open reports whether the server has said that a transaction is open, failed or not.
func (c *conn) open() bool {
	conn := c.Conn()
	return !conn.IsClosed() && conn.PgConn().TxStatus() != 'I'
}

// prepare prepares the statements that the connection has not seen yet, and those around them. That happens within the transaction, so that a
// statement that cannot be prepared fails it like any other.
func (c *conn) prepare(ctx context.Context, b *Batch, commit bool) error {
	for i := range b.statements {
		if err := c.prepareOne(ctx, b.statements[i].text); err != nil {
			return err
		}
	}
	if commit {
		return c.prepareOne(ctx, commitText)
	}
	return nil
}

func (c *conn) prepareOne(ctx context.Context, text string) error {
	if _, done := c.prepared[text]; done {
		return nil
	}
	if err := c.begin(ctx); err != nil {
		return err
	}
	// BEGIN has been sent by itself this time. The next transaction can send it together with this statement.
	for _, text := range []string{beginText[""], beginText[pgx.ReadCommitted], commitText, text} {
		described, err := c.Conn().Prepare(ctx, text, text)
		if err != nil {
			return err
		}
		c.prepared[text] = newPrepared(described, c.Conn().TypeMap())
	}
	return nil
}

// forget drops the prepared statements whose tables may have changed since, so that they are prepared anew.
func (c *conn) forget(ctx context.Context, b *Batch, err error) {
	code := pgerr.Code(err)
	if len(code) != 5 || code[:2] != "0A" && code[:2] != "22" && code[:2] != "26" && code[:2] != "42" {
		return
	}
	for i := range b.statements {
		if text := b.statements[i].text; c.Conn().Deallocate(ctx, text) == nil {
			delete(c.prepared, text)
		}
	}
}
