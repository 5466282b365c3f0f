package pgsql

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

// Trouble is what a connection has seen go wrong, for whoever has to know it although somebody else was told and kept it.
// It is used by whoever has the connection, as the connection is.
type Trouble struct {
	ctxwatch.Handler

	failure, victim *pgconn.PgError
	cancelled       atomic.Bool // set by a goroutine of pgx
}

const troubleKey = "github.com/oncebox/oncebox/internal/pgsql.Trouble"

// NoteTrouble has the connections that are opened with cfg keep a [Trouble].
func NoteTrouble(cfg *pgx.ConnConfig) {
	onError, build := cfg.OnPgError, cfg.BuildContextWatcherHandler
	cfg.OnPgError = func(c *pgconn.PgConn, err *pgconn.PgError) bool {
		if t, ok := c.CustomData()[troubleKey].(*Trouble); ok {
			t.note(c.TxStatus(), err)
		}
		return onError == nil || onError(c, err)
	}
	cfg.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		t := &Trouble{Handler: build(c)}
		c.CustomData()[troubleKey] = t
		return t
	}
}

// TroubleOf returns the trouble of a connection, nil if it keeps none.
func TroubleOf(c *pgx.Conn) *Trouble {
	t, _ := c.PgConn().CustomData()[troubleKey].(*Trouble)
	return t
}

// note is called before the server has said in which state its error leaves the transaction: status is the one before.
func (t *Trouble) note(status byte, err *pgconn.PgError) {
	if status != 'E' {
		t.failure = err
	}
	if IsVictim(err) {
		t.victim = err
	}
}

// HandleCancel makes a Trouble a handler of pgx.
func (t *Trouble) HandleCancel(ctx context.Context) {
	t.cancelled.Store(true)
	t.Handler.HandleCancel(ctx)
}

// Failure returns the error that failed the open transaction of c. nil: it has not failed.
func (t *Trouble) Failure(c *pgx.Conn) error {
	if t == nil || t.failure == nil || c.PgConn().TxStatus() != 'E' {
		return nil
	}
	return t.failure
}

// Victim returns the latest deadlock or serialization failure, also one that was rolled back to a savepoint.
func (t *Trouble) Victim() error {
	if t == nil || t.victim == nil {
		return nil
	}
	return t.victim
}

// Lost tells whether c is closed, and not by somebody who cancelled a statement.
func (t *Trouble) Lost(c *pgx.Conn) bool { return t != nil && c.IsClosed() && !t.cancelled.Load() }

// Forget has the next transaction of c, or what follows in this one, begin anew.
func (t *Trouble) Forget(c *pgx.Conn) {
	if t == nil {
		return
	}
	t.victim = nil
	if !c.IsClosed() {
		t.cancelled.Store(false) // it was too late
	}
}
