package pgsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
)

// ErrUnconfirmed means that a transaction is committed on the primary, and may be lost in a failover: the server stopped waiting for
// the synchronous standby.
var ErrUnconfirmed = errors.New("the wait for the synchronous standby was ended before it confirmed the COMMIT")

// awaitStandby is a COMMIT that waits, if there is a synchronous standby. A transaction that writes nothing would not wait.
const awaitStandby = `SELECT CASE WHEN current_setting('synchronous_standby_names') <> '' THEN pg_logical_emit_message(true, 'oncebox', '') END`

// AwaitStandby waits until the synchronous standby, if there is one, has confirmed everything that is committed now. [ErrUnconfirmed]: this wait
// was ended as well.
func AwaitStandby(ctx context.Context, conn bun.Conn) error {
	onTrouble(conn, func(c *pgx.Conn, t *Trouble) { t.Forget(c) })
	if _, err := conn.Conn.ExecContext(ctx, awaitStandby); err != nil {
		return err
	}
	if unconfirmed(conn) {
		return ErrUnconfirmed
	}
	return nil
}

// unconfirmed reports whether the last COMMIT of the connection was not confirmed by the standby.
func unconfirmed(conn bun.Conn) (is bool) {
	onTrouble(conn, func(_ *pgx.Conn, t *Trouble) { is = t.Unconfirmed() })
	return is
}

// onTrouble calls fn, unless the connection is broken or not one of pgx.
func onTrouble(conn bun.Conn, fn func(*pgx.Conn, *Trouble)) {
	_, _ = NativeConn(conn, func(c *pgx.Conn) error {
		fn(c, TroubleOf(c))
		return nil
	})
}

// AwaitStandbyOn is [AwaitStandby] on a connection of the pool. Use it for a row that is found to be written already: the wait of its writer may
// have been ended.
func AwaitStandbyOn(ctx context.Context, pool *bun.DB) error {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return AwaitStandby(ctx, conn)
}

// Confirmed returns a runner for statements that must not be lost in a failover once Exec or QueryRow has returned without an error. Outside of a
// transaction their COMMIT is like that of a unit of work: it waits for the synchronous standby, and nobody sees it before.
//
// When the caller gives up, the statement is not cancelled, because that would end the wait: the server may still execute it. So use it for
// statements that never wait for long and that may take effect late.
func (r *Runner) Confirmed() *Runner {
	other := *r
	other.confirmed = true
	return &other
}

// alone runs one statement of the pool on a connection of its own, as [Runner.Confirmed] says.
func (r *Runner) alone(ctx context.Context, pool *bun.DB, fn func(handle) error) (err error) {
	for range 3 { // as often as database/sql does: a broken connection of the pool is noticed only by its use
		err = r.aloneOnce(ctx, pool, fn)
		if !errors.Is(err, driver.ErrBadConn) || errors.Is(err, ErrUnconfirmed) { // committed: the connection broke afterwards
			break
		}
	}
	return err
}

func (r *Runner) aloneOnce(ctx context.Context, pool *bun.DB, fn func(handle) error) error {
	stricter, err := r.isolation.isStricter(ctx, pool)
	if err != nil {
		return err
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	onTrouble(conn, func(c *pgx.Conn, t *Trouble) {
		t.Forget(c)
		t.Committing(true)
	})
	if stricter {
		err = readCommitted(ctx, conn.Conn, fn)
	} else {
		err = fn(conn.Conn)
	}
	ended := unconfirmed(conn)
	onTrouble(conn, func(c *pgx.Conn, t *Trouble) { t.Forget(c) }) // allow a cancel request again, if COMMIT was answered
	if ended && err == nil {
		err = AwaitStandby(ctx, conn)
	}
	if ended && err != nil {
		err = errors.Join(ErrUnconfirmed, err)
	}
	return err
}

// readCommitted runs one statement in a transaction.
func readCommitted(ctx context.Context, conn *sql.Conn, fn func(handle) error) error {
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	return end(tx, fn(tx))
}
