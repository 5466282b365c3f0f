package pgsql

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
)

// ErrPooler means that prepared statements are lost between transactions.
var ErrPooler = errors.New("a transaction-mode pooler stands before the database, which loses prepared statements: " +
	"set ONCEBOX_POOLER=true (Config.Pooler)")

const (
	askSession = `SELECT pg_backend_pid()`
	isPrepared = `SELECT EXISTS (SELECT FROM pg_prepared_statements WHERE name = $1)`

	probeName   = "oncebox_pooler_probe"
	probeRounds = 4
)

// CheckSession returns [ErrPooler] if transactions of one connection run in several sessions of the server and a prepared statement is not
// carried from one to the other. It costs a round trip where there is no pooler. It says nothing about drivers other than pgx.
func CheckSession(ctx context.Context, db bun.IDB) error {
	_, err := Native(ctx, db, func(conn *pgx.Conn) error {
		var session uint32
		if err := conn.QueryRow(ctx, askSession, pgx.QueryExecModeExec).Scan(&session); err != nil {
			return err
		}
		if session == conn.PgConn().PID() { // a pooler tells its clients numbers of its own
			return nil
		}
		return checkPooler(ctx, conn)
	})
	if code := Code(err); code == CodeInvalidStatementName || code == codeDuplicateStatement {
		return fmt.Errorf("%w: %w", ErrPooler, err)
	}
	return err
}

// checkPooler tells a pooler of transactions from one of sessions, and from one that carries prepared statements along. Poolers
// prefer the session that was used last, so a lone client may stay in one for long: another client is the one to find its
// statement there.
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
			return ErrPooler
		}
	}
	return nil
}
