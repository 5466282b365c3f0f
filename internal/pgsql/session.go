package pgsql

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/internal/pgerr"
)

// Session identifies a session, and the history of its server.
type Session struct {
	// PID and Start are those of the backend, as in pg_stat_activity.
	PID   int32
	Start time.Time
	// Timeline is the timeline of the log (WAL). A standby that takes over begins a new timeline, on which it gives the transaction ids that it has
	// not seen in use to other transactions. "" on a standby, and if the server does not report it.
	Timeline string
	// Mark changes when the server, or one of its processes, crashes, and differs between servers: then the ids of transactions that did not reach the
	// disk are given to other transactions. "" if it is not known.
	Mark string

	// asked is when the server was asked, if its answer may change: behind a pooler, which may switch to another server, and on a standby, which may
	// be promoted while the session goes on. Zero: the answer does not change.
	asked time.Time
}

// Timeline is an expression for [Session].Timeline.
const Timeline = `CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END`

const (
	// Mark is an expression for [Session].Mark: the timeline, and when statistics were reset. Recovery from a crash resets all of them
	// (PostgreSQL, "The Cumulative Statistics System"), also where one process was killed and the server's start stays the same. A clean
	// restart loses no transaction, and keeps them. To reset them by hand is harmless: the mark changes without need. The timeline
	// is there for a standby that was made by a copy of the files: it may have the statistics of its primary.
	//
	// Versions of PostgreSQL that nobody has tried have no mark: they might keep statistics over a crash.
	Mark = `CASE WHEN ` + tried + ` THEN ` + Timeline + ` || ' ' || ` + reset + ` END`

	// MarkAlone is the Mark for a server that does not report its timeline.
	MarkAlone = `CASE WHEN ` + tried + ` THEN extract(epoch FROM pg_postmaster_start_time()) || ' ' || ` + reset + ` END`

	tried = `current_setting('server_version_num')::int < 190000`
	reset = `extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time())`

	selectSession      = `SELECT pid, backend_start, ` + Timeline + `, coalesce(` + Mark + `, '')` + fromActivity
	selectSessionAlone = `SELECT pid, backend_start, '', coalesce(` + MarkAlone + `, '')` + fromActivity
	fromActivity       = `, pg_is_in_recovery() FROM pg_stat_get_activity(pg_backend_pid())`
)

// sessionAge is how long an answer that may change is used. For this time after a failover, or the promotion of a standby, a COMMIT whose answer is
// lost stays unknown unless a row proves it.
const sessionAge = 10 * time.Second

const sessionKey = "github.com/oncebox/oncebox/internal/pgsql.Session"

// SessionOf returns the session of a connection. It asks the server once; behind a pooler and on a standby every ten seconds. The zero value means
// that the server does not report its session. Do not call it within a transaction: a failed question would fail the transaction.
func SessionOf(ctx context.Context, conn *pgx.Conn) Session {
	data := conn.PgConn().CustomData()
	if known, ok := data[sessionKey].(Session); ok && (known.asked.IsZero() || time.Since(known.asked) < sessionAge) {
		return known
	}
	var s Session
	var standby bool
	var err error
	for _, question := range []string{selectSession, selectSessionAlone} {
		err = conn.QueryRow(ctx, question, pgx.QueryExecModeExec).Scan(&s.PID, &s.Start, &s.Timeline, &s.Mark, &standby)
		if pgerr.Code(err) == "" {
			break
		}
	}
	if err != nil {
		s = Session{}
	}
	if pooled := uint32(s.PID) != conn.PgConn().PID(); pooled || standby { //nolint:gosec // a process id
		s.asked = time.Now()
	}
	if pgerr.Code(err) != "" || err == nil {
		data[sessionKey] = s // kept, even if the server does not report it
	}
	return s
}

const selectBeside = `SELECT count(*) FROM pg_stat_get_activity($1) a JOIN pg_database d ON d.oid = a.datid
WHERE a.backend_start = $2 AND d.datname = current_database()`

// Beside reports whether the session is open now in the very database to which conn is connected, as far as the server shows it: it hides the
// sessions of other roles.
func (s Session) Beside(ctx context.Context, conn *pgx.Conn) bool {
	var n int
	err := conn.QueryRow(ctx, selectBeside, pgx.QueryExecModeExec, s.PID, s.Start).Scan(&n)
	return err == nil && n == 1
}
