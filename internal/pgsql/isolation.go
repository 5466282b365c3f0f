package pgsql

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
)

// isolation knows whether the transactions of a pool are READ COMMITTED unless they say otherwise. The statements of this module need that: a
// statement that has waited for a lock must see the changes that the owner of the lock committed. A database, a role and a session can have another
// default (default_transaction_isolation); then each statement outside of a transaction needs one of its own, which costs two round trips.
type isolation struct {
	mu       sync.Mutex
	asked    time.Time
	stricter bool
}

// isolationAge is how long an answer is valid, because somebody may change the default.
const isolationAge = time.Minute

const askIsolation = `SELECT current_setting('default_transaction_isolation') NOT IN ('read committed', 'read uncommitted')`

// isStricter asks the server once per isolationAge. After a yes it is not asked again, because the pool may contain connections of both kinds.
func (i *isolation) isStricter(ctx context.Context, db *bun.DB) (bool, error) {
	i.mu.Lock()
	stricter, known := i.stricter, time.Since(i.asked) < isolationAge
	i.mu.Unlock()
	if stricter || known {
		return stricter, nil
	}
	if err := db.DB.QueryRowContext(ctx, askIsolation, pgx.QueryExecModeExec).Scan(&stricter); err != nil {
		return false, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked, i.stricter = time.Now(), i.stricter || stricter
	return i.stricter, nil
}

// begin returns the handle for a statement, and the transaction to be ended after it, nil if the statement has none of its own.
func (r *Runner) begin(ctx context.Context, db bun.IDB) (handle, *sql.Tx, error) {
	conn, err := unwrap(db)
	if err != nil {
		return nil, nil, err
	}
	pool, ok := db.(*bun.DB)
	if !ok {
		return conn, nil, ended(ctx, conn)
	}
	stricter, err := r.isolation.isStricter(ctx, pool)
	if err != nil || !stricter {
		return conn, nil, err
	}
	tx, err := pool.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	return tx, tx, err
}

// ended returns an error if the transaction of the unit has ended: the statement would then commit by itself.
func ended(ctx context.Context, conn handle) error {
	if tx, ok := conn.(*sql.Tx); ok {
		if u := UnitOf(ctx); u != nil {
			return u.Ended(tx)
		}
	}
	return nil
}

// end ends the transaction of a statement.
func end(tx *sql.Tx, err error) error {
	switch {
	case tx == nil:
		return err
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		_ = tx.Rollback()
		return err
	default:
		return errors.Join(err, tx.Commit())
	}
}
