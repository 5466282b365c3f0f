package pgsql

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Session is what tells one session from all others, and the history of its server from that of another.
type Session struct {
	// PID and Start are those of the backend, as in pg_stat_activity.
	PID   int32
	Start time.Time
	// Timeline is that of the log (WAL). A standby that takes over begins a new one, on which the transaction ids of the old one
	// are given to other transactions. "" on a standby, and where it is not known.
	Timeline string
}

// Timeline is an expression for [Session].Timeline.
const Timeline = `CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END`

const selectSession = `SELECT pid, backend_start, ` + Timeline + ` FROM pg_stat_get_activity(pg_backend_pid())`

// SessionOf asks for the session of a connection, once. The zero value means that the server does not tell. It must not be
// called within a transaction, which would have failed then.
func SessionOf(ctx context.Context, conn *pgx.Conn) Session {
	const key = "github.com/oncebox/oncebox/internal/pgsql.Session"
	data := conn.PgConn().CustomData()
	if known, ok := data[key].(Session); ok {
		return known
	}
	var s Session
	err := conn.QueryRow(ctx, selectSession, pgx.QueryExecModeExec).Scan(&s.PID, &s.Start, &s.Timeline)
	if err != nil {
		s = Session{}
	}
	if Code(err) != "" || err == nil {
		data[key] = s // an answer, whatever it was
	}
	return s
}

const selectBeside = `SELECT count(*) FROM pg_stat_get_activity($1) a JOIN pg_database d ON d.oid = a.datid
WHERE a.backend_start = $2 AND d.datname = current_database()`

// Beside tells whether the session is open now in the very database that conn is connected to, as far as the server tells:
// it hides the sessions of other roles.
func (s Session) Beside(ctx context.Context, conn *pgx.Conn) bool {
	var n int
	err := conn.QueryRow(ctx, selectBeside, pgx.QueryExecModeExec, s.PID, s.Start).Scan(&n)
	return err == nil && n == 1
}
