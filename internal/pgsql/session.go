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
	// Mark is another one after a crash of the server, of one of its processes, and on another server: then the ids of
	// transactions that did not reach the disk are given to others. "" where it is not known.
	Mark string

	// asked is when the server was asked, if a pooler stands before it. Its server may become another one.
	asked time.Time
}

// Timeline is an expression for [Session].Timeline.
const Timeline = `CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END`

const (
	// Mark is an expression for [Session].Mark: when statistics were reset. Recovery from a crash resets all of them
	// (PostgreSQL, "The Cumulative Statistics System"), also where one process was killed and the server's start stays the same. A clean
	// restart keeps them, and all transactions. Somebody who resets them by hand only makes the mark another one. A standby
	// may have been made by a copy of the files, with its statistics: the timeline tells it from its primary.
	//
	// A version that is newer than those that were tried has no mark: it might keep its statistics.
	Mark = `CASE WHEN ` + tried + ` THEN ` + Timeline + ` || ' ' || ` + reset + ` END`

	// MarkAlone is for a server that does not tell its timeline.
	MarkAlone = `CASE WHEN ` + tried + ` THEN extract(epoch FROM pg_postmaster_start_time()) || ' ' || ` + reset + ` END`

	tried = `current_setting('server_version_num')::int < 190000`
	reset = `extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time())`

	selectSession      = `SELECT pid, backend_start, ` + Timeline + `, coalesce(` + Mark + `, '')` + fromActivity
	selectSessionAlone = `SELECT pid, backend_start, '', coalesce(` + MarkAlone + `, '')` + fromActivity
	fromActivity       = ` FROM pg_stat_get_activity(pg_backend_pid())`
)

// sessionAge is for how long the session behind a pooler is believed to be the same. After a failover of the server, COMMITs
// whose answer is lost stay unknown for as long if no row proves them.
const sessionAge = 10 * time.Second

const sessionKey = "github.com/oncebox/oncebox/internal/pgsql.Session"

// SessionOf asks for the session of a connection, once, and behind a pooler each ten seconds. The zero value means that the
// server does not tell. It must not be called within a transaction, which would have failed then.
func SessionOf(ctx context.Context, conn *pgx.Conn) Session {
	data := conn.PgConn().CustomData()
	if known, ok := data[sessionKey].(Session); ok && (known.asked.IsZero() || time.Since(known.asked) < sessionAge) {
		return known
	}
	var s Session
	var err error
	for _, question := range []string{selectSession, selectSessionAlone} {
		err = conn.QueryRow(ctx, question, pgx.QueryExecModeExec).Scan(&s.PID, &s.Start, &s.Timeline, &s.Mark)
		if Code(err) == "" {
			break
		}
	}
	if err != nil {
		s = Session{}
	}
	if uint32(s.PID) != conn.PgConn().PID() { //nolint:gosec // a process id
		s.asked = time.Now()
	}
	if Code(err) != "" || err == nil {
		data[sessionKey] = s // an answer, whatever it was
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
