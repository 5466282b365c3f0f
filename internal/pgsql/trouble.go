package pgsql

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/oncebox/oncebox/internal/pgerr"
)

// Trouble records the errors on a connection. The caller of a statement may ignore its error; a unit of work finds it here. Like the connection, it
// is not safe for concurrent use.
type Trouble struct {
	ctxwatch.Handler

	failure, victim *pgconn.PgError
	unconfirmed     bool
	// Used by goroutines of pgx as well.
	cancelled, committing atomic.Bool

	ending ending
	plain  pgx.ConnConfig
}

const troubleKey = "github.com/oncebox/oncebox/internal/pgsql.Trouble"

// NoteTrouble makes the connection that is opened with cfg keep a [Trouble]. A second connection needs a cfg of its own.
func NoteTrouble(cfg *pgx.ConnConfig) {
	t := &Trouble{plain: *cfg}
	onError, onNotice, build, dial := cfg.OnPgError, cfg.OnNotice, cfg.BuildContextWatcherHandler, cfg.DialFunc
	cfg.OnPgError = func(c *pgconn.PgConn, err *pgconn.PgError) bool {
		t.note(c.TxStatus(), err)
		return onError == nil || onError(c, err)
	}
	cfg.OnNotice = func(c *pgconn.PgConn, n *pgconn.Notice) {
		t.unconfirmed = t.unconfirmed || n.Routine == endOfWait
		if onNotice != nil {
			onNotice(c, n)
		}
	}
	cfg.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		t.Handler = build(c)
		c.CustomData()[troubleKey] = t
		return t
	}
	cfg.BuildFrontend = t.ending.readAlong(cfg.BuildFrontend)
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if t.committing.Load() {
			return nil, errCommitting
		}
		return dial(ctx, network, address)
	}
}

// endOfWait is the function of the server that warns when a cancel request, or an administrator, has ended the wait of a COMMIT for the
// synchronous standby (src/backend/replication/syncrep.c). statement_timeout does not end it. The text of the warning is translated,
// this name is not.
const endOfWait = "SyncRepWaitForLSN"

// errCommitting is the reason not to send a cancel request. pgx sends one over a connection of its own when it gives up a connection.
var errCommitting = errors.New("COMMIT is on its way: a cancel request could end its wait for the standby")

// ConfigOf returns the configuration of a connection, for another connection that keeps no [Trouble].
func ConfigOf(c *pgx.Conn) *pgx.ConnConfig {
	if t := TroubleOf(c); t != nil {
		return t.plain.Copy()
	}
	return c.Config()
}

// TroubleOf returns the trouble of a connection, nil if it keeps none.
func TroubleOf(c *pgx.Conn) *Trouble {
	t, _ := c.PgConn().CustomData()[troubleKey].(*Trouble)
	return t
}

// note records an error of the server. status is the status of the transaction before the error; the server sends the new one later.
func (t *Trouble) note(status byte, err *pgconn.PgError) {
	if status != 'E' {
		t.failure = err
	}
	if pgerr.IsVictim(err) || pgerr.IsOutdated(err) {
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

// Victim returns the latest deadlock, serialization failure or error of an outdated statement, even if it was rolled back to a savepoint.
func (t *Trouble) Victim() error {
	if t == nil || t.victim == nil {
		return nil
	}
	return t.victim
}

// Lost reports whether c is closed, and not because a statement was cancelled.
func (t *Trouble) Lost(c *pgx.Conn) bool { return t != nil && c.IsClosed() && !t.cancelled.Load() }

// Forget clears the trouble before a transaction of c, or a part of one, begins.
func (t *Trouble) Forget(c *pgx.Conn) {
	if t == nil {
		return
	}
	t.victim, t.unconfirmed = nil, false
	if !c.IsClosed() {
		t.cancelled.Store(false)  // the cancellation came too late to have an effect
		t.committing.Store(false) // COMMIT was answered
	}
}

// Committing records whether COMMIT is on its way. If the connection is closed meanwhile, no cancel request is sent: it would end the wait for the
// synchronous standby, and others would see a transaction that no standby has.
func (t *Trouble) Committing(is bool) {
	if t != nil {
		t.committing.Store(is)
	}
}

// Unconfirmed reports whether the server has answered a COMMIT that no synchronous standby confirmed.
func (t *Trouble) Unconfirmed() bool { return t != nil && t.unconfirmed }

// IsCommitting reports whether COMMIT is on its way on a connection, see [Trouble.Committing]. It is for tests that end a process at its COMMIT.
func IsCommitting(c *pgconn.PgConn) bool {
	t, _ := c.CustomData()[troubleKey].(*Trouble)
	return t != nil && t.committing.Load()
}
