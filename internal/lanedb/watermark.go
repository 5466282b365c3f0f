package lanedb

import (
	"context"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Watermark is an observation of the sequence. Once every transaction up to XID has ended, no row can appear at or
// below Seq any more.
type Watermark struct {
	// Seq is the last number that was drawn when the observation began.
	Seq int64
	// XID is a transaction id that was assigned after Seq was read.
	XID int64
	// Xmin is the oldest transaction that was still running.
	Xmin int64
	// Running has the ids of all running transactions below Xmax, in order. Nothing is known about transactions from
	// Xmax on.
	Running []int64
	Xmax    int64
	// Timeline is the timeline of the server's log (WAL). A standby that takes over begins a new one.
	Timeline string
	// Incarnation changes with each start of the server. It is different on another server, and in each copy of the
	// database. "": none has been entered yet.
	Incarnation string
}

// observe reads the sequence before it assigns a transaction id. Every row assigns its transaction's id before it draws
// its number. So a transaction that drew a number up to v had an id below x when it did, and has ended once xmin > x.
//
// A server that crashes may forget numbers that no committed row has, and give them out again. A stored position with
// such numbers was written later in the log (WAL), so the server has forgotten it too. A position in the memory of a
// projector belongs to the old incarnation, and is refused.
const observe = `
WITH s AS MATERIALIZED (SELECT coalesce(pg_sequence_last_value('{schema}.outbox_seq'), 0) AS v)
SELECT v, pg_current_xact_id()::text::bigint, pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
	(SELECT coalesce(string_agg(x::text, ',' ORDER BY x), '') FROM pg_snapshot_xip(pg_current_snapshot()) x),
	pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
	` + pgsql.Timeline + `, ` + incarnation + `
FROM s`

// ReadWatermark takes a watermark. It counts for a fetch only if that fetch began after a later observation returned an Xmin
// beyond the mark's XID.
func (s Log) ReadWatermark(ctx context.Context) (Watermark, error) {
	m, err := s.observe(ctx)
	if err == nil && m.Incarnation == "" {
		if _, err = s.box.Run.Exec(ctx, s.box.DB, begin); err == nil {
			m, err = s.observe(ctx)
		}
	}
	return m, outboxdb.Wrap("observe the sequence", err)
}

func (s Log) observe(ctx context.Context) (m Watermark, err error) {
	var running string
	err = s.box.Run.QueryRow(ctx, s.box.DB, observe, nil, &m.Seq, &m.XID, &m.Xmin, &running, &m.Xmax, &m.Timeline, &m.Incarnation)
	m.Running = parseInts(running)
	return m, err
}

// incarnation is an expression whose value changes when the database may have another past than before. All that a
// process remembers about rows and numbers is void then. The value changes after each of these events, whether they
// keep the rows of unlogged tables or not:
//
//   - a crash of the server, a standby that takes over, a backup that is recovered: the row is gone, see begin;
//   - a dump that is restored, into whichever database and schema: another transaction has written the row, with the id that it had;
//   - a copy of the database by CREATE DATABASE … TEMPLATE, which has the row as it was: its files have the number of another database;
//   - a server that is stopped and started again, on files that may have been put in their place meanwhile, and another server: it began
//     at another time.
//
// Each statement of a projector contains it, so it asks for nothing that is not in the server's memory: 3 µs, of which the id alone takes 2.
const incarnation = `coalesce((SELECT concat_ws('/', i.id, i.xmin, pg_relation_filepath(i.tableoid), date_part('epoch', pg_postmaster_start_time()))
	FROM {schema}.outbox_incarnation i), '')`

// begin enters the row after a crash. It waits for other processes that do the same, and does nothing if they were
// faster.
const begin = `INSERT INTO {schema}.outbox_incarnation DEFAULT VALUES ON CONFLICT DO NOTHING`

// sameServer, followed by the incarnation for which positions were read, is a condition. It is false on a server that
// may have forgotten rows or numbers on which these positions rest, or may have given the numbers to other rows.
const sameServer = incarnation + ` = `
