package migrations_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/partition"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// partitioned is one of the two tables with daily children.
type partitioned struct {
	table string
	// insert stores one row of the given time, "2026-11-21 09:00:00".
	insert string
}

const outboxSentRow = `INSERT INTO outbox_sent (seq, id, occurred_at, created_at, aggregate_version, schema_version, lane,
		retry_count, crashes, tenant_id, topic, aggregate_type, aggregate_id, event_type, source, content_type, event_metadata, payload, sent_at)
	SELECT nextval('outbox_seq'), gen_random_uuid(), now(), now(), 0, 1, 0, 0, 0, 't', 'order', '', '', 'e', 's', 'text/plain', '{}', '', ?::timestamptz`

const inboxRow = `INSERT INTO inbox (message_key, consumer, tenant_id, source)
	SELECT (lpad(to_hex((extract(epoch FROM ?::timestamptz) * 1000)::bigint), 12, '0') || '7' || substr(md5(random()::text), 1, 3)
		|| '8' || substr(md5(random()::text), 1, 15))::uuid, 'c', 't', 's'`

func bothTables() []partitioned {
	return []partitioned{{"outbox_sent", outboxSentRow}, {"inbox", inboxRow}}
}

func (p partitioned) prefix() string { return strings.TrimSuffix(p.table, "_sent") }

// make waits as its callers do: the function gives up after 50 ms, so that a vacuum that has the table holds up no writer.
func (p partitioned) make(t *testing.T, db bun.IDB, day string) (made bool) {
	t.Helper()
	require.NoError(t, partition.Patiently(t.Context(), func() error {
		return db.NewRaw("SELECT "+p.prefix()+"_make_partition(?)", day).Scan(t.Context(), &made)
	}))
	return made
}

func (p partitioned) drop(t *testing.T, db bun.IDB, before string) int {
	t.Helper()
	return scan[int](t, db, fmt.Sprintf(p.dropping(), "'"+before+"'"))
}

// dropping is the statement that drops what ended before %s, child by child.
func (p partitioned) dropping() string {
	return `SELECT count(*) FILTER (WHERE ` + strings.Join(p.dropsOf("day"), " AND ") + `)
		FROM pg_inherits, to_date(right(inhrelid::regclass::text, 8), 'YYYYMMDD') day
		WHERE inhparent = '` + p.table + `'::regclass AND inhrelid::regclass::text ~ '_[0-9]{8}$' AND (day + 1)::timestamp AT TIME ZONE 'UTC' <= %s`
}

// drops are the calls that drop the day that ended at a moment.
func (p partitioned) drops(at string) []string {
	return p.dropsOf("((" + at + ")::timestamptz AT TIME ZONE 'UTC' - interval '1 day')::date")
}

func (p partitioned) dropsOf(day string) []string {
	if p.table == "inbox" {
		return []string{"inbox_empty_partition(" + day + ", '0')", "inbox_drop_partition(" + day + ")"}
	}
	return []string{"outbox_drop_partition(" + day + ")"}
}

// rows lists the children and how many rows each has: "inbox_20261121 2".
func (p partitioned) rows(t *testing.T, db bun.IDB) (list []string) {
	t.Helper()
	for _, child := range scanAll[string](t, db, `SELECT inhrelid::regclass::text FROM pg_inherits
		WHERE inhparent = ?::regclass AND inhrelid::regclass::text <> 'inbox_foreign' ORDER BY 1`, p.table) {
		list = append(list, fmt.Sprintf("%s %d", child, scan[int](t, db, "SELECT count(*) FROM "+child)))
	}
	return list
}

// forBoth runs a test on each of the tables, in a schema of its own.
func forBoth(t *testing.T, test func(*testing.T, *pgtest.DB, partitioned)) {
	t.Helper()
	for _, p := range bothTables() {
		t.Run(p.table, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Migrated(t, pgtest.Family(p.prefix()))
			withoutDays(t, db)
			test(t, db, p)
		})
	}
}

// withoutDays drops the children that Up has made.
func withoutDays(t *testing.T, db *pgtest.DB) {
	t.Helper()
	for _, child := range scanAll[string](t, db, `SELECT inhrelid::regclass::text FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
		WHERE c.relname ~ '^outbox.*_[0-9]{8}$' AND c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'`) {
		exec(t, db, "DROP TABLE "+child)
	}
}

func TestRowsGoToTheChildOfTheirDay(t *testing.T) {
	forBoth(t, func(t *testing.T, opened *pgtest.DB, p partitioned) {
		// In a time zone far from UTC: days are UTC days all the same.
		db := pool(t, opened, map[string]string{"TimeZone": "Pacific/Kiritimati"})
		require.True(t, p.make(t, db, "2026-11-21"))
		require.False(t, p.make(t, db, "2026-11-21"), "it was there")
		require.True(t, p.make(t, db, "2026-11-22"))
		for _, at := range []string{
			"2026-11-20 23:59:59.999Z", "2026-11-21 00:00:00Z", "2026-11-21 23:59:59.999Z", "2026-11-22 00:00:00Z", "2026-11-23 00:00:00Z",
		} {
			exec(t, db, p.insert, at)
		}
		require.Equal(t, []string{p.table + "_20261121 2", p.table + "_20261122 1", p.table + "_default 2"}, p.rows(t, db))
	})
}

func TestChildIsLikeItsParent(t *testing.T) {
	forBoth(t, func(t *testing.T, db *pgtest.DB, p partitioned) {
		require.True(t, p.make(t, db, "2026-11-21"))
		child := p.table + "_20261121"
		const columns = `SELECT string_agg(format('%s %s %s %s', attname, atttypid::regtype, attnotnull, pg_get_expr(adbin, adrelid)), ',' ORDER BY attname)
			FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum WHERE attrelid = ?::regclass AND attnum > 0`
		require.Equal(t, scan[string](t, db, columns, p.table), scan[string](t, db, columns, child))
		const indexes = `SELECT count(*) FROM pg_index WHERE indrelid = ?::regclass`
		require.Equal(t, scan[int](t, db, indexes, p.table), scan[int](t, db, indexes, child))
		require.Zero(t, scan[int](t, db, "SELECT count(*) FROM pg_constraint WHERE conrelid = ?::regclass AND contype = 'c'", child),
			"the bounds of the partition are its only check")
	})
}

// PostgreSQL refuses to delete from a table without an identity once somebody publishes all tables of the database. And a subscriber stands
// still, with all tables, before a change of a row that it cannot look for: by its primary key, or by all its columns, each by the = of its type.
func TestSubscribersFindEachRow(t *testing.T) {
	db := pgtest.Migrated(t)
	type column struct{ Relation, Attribute string }
	var whole []column
	err := db.NewRaw(`SELECT c.relname AS relation, a.attname AS attribute FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND a.attnum > 0 AND NOT a.attisdropped
		AND NOT (c.relreplident = 'd' AND EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary))`).Scan(t.Context(), &whole)
	require.NoError(t, err)
	require.Contains(t, whole, column{"outbox", "payload"})
	full := scanAll[string](t, db, "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relreplident = 'f'")
	for _, c := range whole {
		require.Contains(t, full, c.Relation, "it has neither a primary key nor another identity")
		_, err := db.Exec("SELECT FROM " + c.Relation + " GROUP BY " + c.Attribute) // looks for the = as a subscriber does
		require.NoError(t, err, c)
	}
}

func TestInboxChildRefusesAMessageTwice(t *testing.T) {
	db := pgtest.Migrated(t)
	p := partitioned{"inbox", inboxRow}
	require.True(t, p.make(t, db, "2026-11-21"))
	exec(t, db, p.insert, "2026-11-21 09:00:00Z")
	_, err := db.ExecContext(t.Context(), "INSERT INTO inbox SELECT * FROM inbox")
	require.Equal(t, pgerr.UniqueViolation, pgerr.Code(err))
}

// Rows that were faster than the function that makes their child.
func TestRowsOfTheDayMoveOutOfTheDefaultChild(t *testing.T) {
	forBoth(t, func(t *testing.T, db *pgtest.DB, p partitioned) {
		for _, at := range []string{"2026-11-20 09:00:00Z", "2026-11-21 09:00:00Z", "2026-11-21 10:00:00Z", "2026-11-22 00:00:00Z"} {
			exec(t, db, p.insert, at)
		}
		content := "SELECT md5(string_agg(x::text, ',' ORDER BY x::text)) FROM " + p.table + " x"
		before := scan[string](t, db, content)
		require.True(t, p.make(t, db, "2026-11-21"))
		require.Equal(t, []string{p.table + "_20261121 2", p.table + "_default 2"}, p.rows(t, db))
		require.Equal(t, before, scan[string](t, db, content), "moved as they are")
	})
}

// Too many to be moved while everybody waits: they stay, and it is no error that would come again every hour.
func TestManyRowsStayInTheDefaultChild(t *testing.T) {
	forBoth(t, func(t *testing.T, db *pgtest.DB, p partitioned) {
		exec(t, db, "ALTER TABLE "+p.table+"_default SET (autovacuum_enabled = off)") // it might hold the table's lock for too long
		exec(t, db, p.insert+" FROM generate_series(1, 10000)", "2026-11-21 09:00:00Z")
		exec(t, db, p.insert+" FROM generate_series(1, 10001)", "2026-11-22 09:00:00Z")
		require.True(t, p.make(t, db, "2026-11-21"))
		p.make(t, db, "2026-11-22") // of the other tables, where that makes some
		require.False(t, p.make(t, db, "2026-11-22"))
		require.Equal(t, []string{p.table + "_20261121 10000", p.table + "_default 10001"}, p.rows(t, db))
	})
}

// A child that somebody detached, to look at it or to keep it, comes back with its rows.
func TestDetachedChildIsAttachedAgain(t *testing.T) {
	forBoth(t, func(t *testing.T, db *pgtest.DB, p partitioned) {
		require.True(t, p.make(t, db, "2026-11-21"))
		exec(t, db, p.insert, "2026-11-21 09:00:00Z")
		exec(t, db, "ALTER TABLE "+p.table+" DETACH PARTITION "+p.table+"_20261121")
		require.True(t, p.make(t, db, "2026-11-21"))
		require.Equal(t, []string{p.table + "_20261121 1", p.table + "_default 0"}, p.rows(t, db))
	})
}

func TestManyMakeTheSameChild(t *testing.T) {
	const makers = 8
	forBoth(t, func(t *testing.T, opened *pgtest.DB, p partitioned) {
		// A reader holds them all up until each has seen that the child is not there.
		reader, err := opened.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer reader.Rollback()
		exec(t, reader, "SELECT count(*) FROM "+p.table)

		db := pool(t, opened, map[string]string{"application_name": opened.Schema})
		var wg sync.WaitGroup
		var made atomic.Int64
		errs := make([]error, makers)
		for i := range errs {
			wg.Go(func() {
				var ok bool
				errs[i] = db.NewRaw("SELECT "+p.prefix()+"_make_partition('2026-11-21', '2 min')").Scan(t.Context(), &ok)
				if ok {
					made.Add(1)
				}
			})
		}
		awaitSessions(t, opened, makers, "wait_event_type = 'Lock'", "the makers to wait for the reader")
		require.NoError(t, reader.Rollback())
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		require.EqualValues(t, 1, made.Load())
	})
}

func TestDropOldDays(t *testing.T) {
	forBoth(t, func(t *testing.T, db *pgtest.DB, p partitioned) {
		for _, day := range []string{"2020-01-01", "2020-01-02", "2020-01-03"} {
			require.True(t, p.make(t, db, day))
			exec(t, db, p.insert, day+" 12:00:00Z")
		}
		exec(t, db, p.insert, "2019-01-01 12:00:00Z")
		require.Equal(t, 0, p.drop(t, db, "2020-01-01 23:59:59Z"), "the day is not over")
		require.Equal(t, 2, p.drop(t, db, "2020-01-03 00:00:00Z"))
		require.Equal(t, []string{p.table + "_20200103 1", p.table + "_default 1"}, p.rows(t, db), "what is in the DEFAULT child stays")
		require.Equal(t, 0, p.drop(t, db, "2020-01-03 00:00:00Z"))
	})
}

func TestDropRefusesTheLastDay(t *testing.T) {
	forBoth(t, func(t *testing.T, db *pgtest.DB, p partitioned) {
		today := scan[string](t, db, "SELECT ((now() AT TIME ZONE 'UTC')::date)::text")
		require.True(t, p.make(t, db, today))
		for _, before := range []string{"now()", "'infinity'", "now() + interval '10 years'"} {
			for _, call := range p.drops(before) {
				_, err := db.ExecContext(t.Context(), "SELECT "+call)
				require.Equal(t, "22023", pgerr.Code(err), call)
				require.ErrorContains(t, err, "must have ended more than 24 hours ago")
			}
		}
		for _, call := range p.drops("now() - interval '24 hours 1 minute'") {
			require.NoError(t, partition.Patiently(t.Context(), func() error {
				_, err := db.ExecContext(t.Context(), "SELECT "+call)
				return err
			}))
		}
		require.Len(t, p.rows(t, db), 2)
	})
}

// One day by name: exactly the archived day goes.
func TestDropOneDay(t *testing.T) {
	db := pgtest.Migrated(t)
	withoutDays(t, db)
	p := bothTables()[0]
	drop := func(db bun.IDB, day string) bool { return scan[bool](t, db, "SELECT outbox_drop_partition(?)", day) }
	for _, day := range []string{"2020-01-01", "2020-01-02", "2020-01-03"} {
		require.True(t, p.make(t, db, day))
		exec(t, db, p.insert, day+" 12:00:00Z")
	}
	require.True(t, drop(db, "2020-01-02"))
	require.Equal(t, []string{"outbox_sent_20200101 1", "outbox_sent_20200103 1", "outbox_sent_default 0"}, p.rows(t, db))
	require.False(t, drop(db, "2020-01-02"), "it is gone")
	exec(t, db, "CREATE TABLE outbox_sent_20200102 (mine int)")
	require.False(t, drop(db, "2020-01-02"), "a table of somebody else's")
	require.Zero(t, scan[int](t, db, "SELECT count(*) FROM outbox_sent_20200102"))

	far := pool(t, db, map[string]string{"TimeZone": "Pacific/Kiritimati"})
	for _, day := range []string{"(now() AT TIME ZONE 'UTC')::date", "(now() AT TIME ZONE 'UTC')::date - 1", "'infinity'", "'-infinity'", "'2999-01-01'"} {
		_, err := far.ExecContext(t.Context(), "SELECT outbox_drop_partition("+day+")")
		require.Equal(t, "22023", pgerr.Code(err), day)
	}
	exec(t, far, "SELECT outbox_drop_partition((now() AT TIME ZONE 'UTC')::date - 2)")

	reader, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer reader.Rollback()
	exec(t, reader, "SELECT count(*) FROM outbox_sent_20200103")
	_, err = db.ExecContext(t.Context(), "SELECT outbox_drop_partition('2020-01-03')")
	require.Equal(t, pgerr.LockNotAvailable, pgerr.Code(err))
	require.NoError(t, reader.Rollback())

	_, callers := role(t, db, "caller")
	exec(t, db, "GRANT USAGE ON SCHEMA "+db.Schema+" TO PUBLIC")
	exec(t, db, "GRANT EXECUTE ON FUNCTION outbox_drop_partition TO PUBLIC")
	tx, err := callers.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	exec(t, tx, "CREATE TEMP TABLE outbox_sent (tenant_id text) PARTITION BY RANGE (tenant_id)")
	exec(t, tx, "CREATE TEMP TABLE outbox_sent_20200101 PARTITION OF outbox_sent FOR VALUES FROM ('a') TO ('b')")
	exec(t, tx, "SET LOCAL search_path = pg_temp")
	require.True(t, scan[bool](t, tx, "SELECT "+db.Schema+".outbox_drop_partition('2020-01-01')"), "the real one")
	require.Zero(t, scan[int](t, tx, "SELECT count(*) FROM pg_temp.outbox_sent_20200101"))
}

// A foreign table that is named like a child is not taken for one.
func TestDropTouchesChildrenOnly(t *testing.T) {
	forBoth(t, func(t *testing.T, db *pgtest.DB, p partitioned) {
		exec(t, db, "CREATE TABLE "+p.table+"_20200101 (mine int)")
		require.Equal(t, 0, p.drop(t, db, "2021-01-01"))
		require.Zero(t, scan[int](t, db, "SELECT count(*) FROM "+p.table+"_20200101"), "it is still there")
	})
}

// The functions run as the owner. A caller who could choose which tables they act on would act as the owner himself.
func TestCallerCannotStandInForTables(t *testing.T) {
	forBoth(t, func(t *testing.T, db *pgtest.DB, p partitioned) {
		require.True(t, p.make(t, db, "2020-01-01"))
		_, callers := role(t, db, "caller")
		exec(t, db, "GRANT USAGE ON SCHEMA "+db.Schema+" TO PUBLIC")
		exec(t, db, "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA "+db.Schema+" TO PUBLIC")
		tx, err := callers.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer tx.Rollback()
		// A decoy with a child of a far day, found first where a name is not qualified.
		exec(t, tx, "CREATE TEMP TABLE "+p.table+" (tenant_id text, sent_at timestamptz, message_key uuid) PARTITION BY RANGE (tenant_id)")
		exec(t, tx, "CREATE TEMP TABLE "+p.table+"_20200102 PARTITION OF "+p.table+" FOR VALUES FROM ('a') TO ('b')")
		exec(t, tx, "CREATE TEMP TABLE "+p.table+"_default PARTITION OF "+p.table+" DEFAULT")
		exec(t, tx, "SET LOCAL search_path = pg_temp")

		call := func(query string) string { return scan[string](t, tx, "SELECT "+db.Schema+"."+p.prefix()+query) }
		require.Equal(t, "true", call("_make_partition('2020-01-02')::text"))
		require.Equal(t, "true", call("_make_partition('2020-01-03')::text"))
		for _, day := range []string{"2020-01-02", "2020-01-03", "2020-01-04"} {
			for _, drop := range p.drops("'" + day + " 00:00Z'") {
				exec(t, tx, "SELECT "+db.Schema+"."+drop)
			}
		}
		require.Equal(t, 2, scan[int](t, tx, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'pg_temp."+p.table+"'::regclass"),
			"the decoy has its two children still and no more")
		require.NoError(t, tx.Commit())
		require.Equal(t, []string{p.table + "_default 0"}, p.rows(t, db))
	})
}

// A session that waits for a lock on these tables makes every settle and every handler wait behind it, so it waits shortly.
func TestLockTimeout(t *testing.T) {
	forBoth(t, func(t *testing.T, db *pgtest.DB, p partitioned) {
		require.True(t, p.make(t, db, "2020-01-01"))
		reader, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer reader.Rollback()
		exec(t, reader, "SELECT count(*) FROM "+p.table)

		exec(t, reader, p.insert, "2020-01-01 12:00:00Z")

		for _, call := range append(p.drops("'2020-01-02 00:00Z'"), p.prefix()+"_make_partition('2020-01-02', '1 ms')") {
			_, err := db.ExecContext(t.Context(), "SELECT "+call)
			require.Equal(t, pgerr.LockNotAvailable, pgerr.Code(err), call)
		}
		require.False(t, p.make(t, db, "2020-01-01"), "what is there needs no lock")
		require.NoError(t, reader.Rollback())
		require.True(t, p.make(t, db, "2020-01-02"))
		require.Equal(t, 2, p.drop(t, db, "2020-01-04"))
	})
}

func TestLockTimeoutDoesNotOutliveTheCall(t *testing.T) {
	forBoth(t, func(t *testing.T, db *pgtest.DB, p partitioned) {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer tx.Rollback()
		exec(t, tx, "SET LOCAL lock_timeout = '12 s'")
		require.True(t, p.make(t, tx, "2020-01-01"))
		require.Equal(t, 1, p.drop(t, tx, "2020-01-04"))
		require.Equal(t, "12s", scan[string](t, tx, "SELECT current_setting('lock_timeout')"))
	})
}

func TestInboxDayBound(t *testing.T) {
	db := pool(t, pgtest.Migrated(t), map[string]string{"TimeZone": "America/New_York"})
	require.Equal(t, "00000000-0000-0000-0000-000000000000", scan[string](t, db, "SELECT inbox_day_bound('1970-01-01')"))
	require.Equal(t, "019aa3b5-ec00-0000-0000-000000000000", scan[string](t, db, "SELECT inbox_day_bound('2025-11-21')"))
}
