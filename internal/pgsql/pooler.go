package pgsql

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
)

const (
	askSession = `SELECT pg_backend_pid()`
	isPrepared = `SELECT EXISTS (SELECT FROM pg_prepared_statements WHERE name = $1)`

	probeName   = "oncebox_pooler_probe"
	probeRounds = 4
)

// CheckSession returns [pgerr.ErrPooler] if a pooler runs the transactions of one connection in several sessions of the server, and does not
// carry prepared statements from one session to the next. Without a pooler it costs a round trip. With a driver other than pgx it
// returns nil.
func CheckSession(ctx context.Context, db bun.IDB) error {
	_, err := Native(ctx, db, func(conn *pgx.Conn) error {
		var session uint32
		if err := conn.QueryRow(ctx, askSession, pgx.QueryExecModeExec).Scan(&session); err != nil {
			return err
		}
		if session == conn.PgConn().PID() { // the process ids that a pooler sends to its clients are invented
			return nil
		}
		return checkPooler(ctx, conn)
	})
	if code := pgerr.Code(err); code == pgerr.InvalidStatementName || code == pgerr.DuplicateStatement {
		return fmt.Errorf("%w: %w", pgerr.ErrPooler, err)
	}
	return err
}

// checkPooler returns [pgerr.ErrPooler] for a pooler of transactions, and nil for a pooler of sessions or a pooler that carries prepared statements
// along.
//
// It prepares a statement on one connection, and then looks for it from a second one. A pooler gives a transaction the session that
// was used last. So with a pooler of transactions the second connection gets the session of the first, and finds its statement there.
// The first connection alone might stay in one session for long, and notice nothing.
func checkPooler(ctx context.Context, conn *pgx.Conn) error {
	other, err := pgx.ConnectConfig(ctx, ConfigOf(conn))
	if err != nil {
		return err
	}
	defer other.Close(context.WithoutCancel(ctx))
	if _, err := conn.Prepare(ctx, probeName, askSession); err != nil {
		return err
	}
	defer conn.Deallocate(context.WithoutCancel(ctx), probeName) //nolint:errcheck // nothing depends on it
	for range probeRounds {
		var session uint32
		if err := conn.QueryRow(ctx, probeName).Scan(&session); err != nil {
			return err
		}
		var lost bool
		if err := other.QueryRow(ctx, isPrepared, pgx.QueryExecModeExec, probeName).Scan(&lost); err != nil {
			return err
		}
		if lost {
			return pgerr.ErrPooler
		}
	}
	return nil
}
