package adopt_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/adopt"
	"github.com/oncebox/oncebox/telemetry"
)

// Rows of a key are moved in their order, whatever order they were written in.
func TestOrder(t *testing.T) {
	f := newFixture(t, strings.Replace(orders, "id bigserial PRIMARY KEY", "id bigserial PRIMARY KEY, at int, nr uuid DEFAULT gen_random_uuid()", 1))
	for i := range 25 {
		f.exec(`INSERT INTO old (at, order_id, payload) VALUES (?, ?, ?)`, 100-i, fmt.Sprint(i%3), fmt.Sprint(100-i))
	}
	m := f.moverOf(f.mapping(strings.Replace(mapOrders, "[id]", "[at, nr]", 1)), &adopt.Config{BatchSize: 4})
	require.Equal(t, adopt.Summary{Moved: 25}, f.once(m))
	for i, payload := range f.events("convert_from(payload, 'UTF8')") {
		require.Equal(t, fmt.Sprint(76+i), payload)
	}
}

// A row whose transaction takes long appears before rows that were moved already. It is moved, before later rows of its key.
func TestRowThatBecomesVisibleLate(t *testing.T) {
	f := newFixture(t, orders)
	m := f.moverOf(f.mapping(mapOrders), &adopt.Config{BatchSize: 2})
	late, err := f.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = late.ExecContext(t.Context(), `INSERT INTO old (order_id, payload) VALUES ('a', '1')`)
	require.NoError(t, err)
	f.exec(`INSERT INTO old (order_id, payload) VALUES ('b', '2'), ('c', '3'), ('c', 'no'), ('d', '5')`)
	require.EqualValues(t, 3, f.once(m).Moved)
	require.NoError(t, late.Commit())
	f.exec(`INSERT INTO old (order_id, payload) VALUES ('a', '6')`)
	require.EqualValues(t, 5, f.once(m).Moved)
	require.Equal(t, []string{"2", "3", "5", "1", "6"}, f.events("convert_from(payload, 'UTF8')"))
}

// A row that cannot be mapped stays, and so do later rows of its key. Others are moved. When it is mended, all follow in order.
func TestRowsThatCannotBeMapped(t *testing.T) {
	f := newFixture(t, `CREATE TABLE old (id text, nr bigserial, topic text, order_id text, payload text, metadata text, version text)`)
	const mapping = `{table: old, id: "{id}", topic: "{topic}", aggregate_type: order, aggregate_id: "{order_id}", aggregate_version: "{version}",
		payload: "{payload}", metadata: "{metadata}", order: [nr], delete: true}`
	f.exec(`INSERT INTO old (id, topic, order_id, payload, metadata, version) VALUES
		('1', 'order', 'a', '{"n":1}', NULL, '1'),
		('2', 'order', 'a', '{"n":', NULL, '1'), ('3', 'order', 'a', '{"n":3}', NULL, '1'),
		('4', '', 'b', '4', NULL, '1'), ('5', 'order', 'b', '5', NULL, '1'),
		(NULL, 'order', 'c', '6', NULL, '1'), ('7', 'order', 'c', '7', NULL, '1'),
		('8', 'order', repeat('k', 300), '8', NULL, '1'), ('9', 'a/b', 'e', '9', NULL, '1'),
		('10', 'order', 'f', NULL, NULL, '1'), ('11', 'order', 'g', '11', '[1]', '1'), ('12', 'order', 'h', '12', '{"a":"b"}', 'x'),
		('13', 'order', NULL, '13', NULL, '1'), ('14', 'order', 'i', '14', '{"k":"v"}', '14'), ('', 'order', 'j', '15', NULL, NULL)`)
	m := f.moverOf(f.mapping(mapping), &adopt.Config{BatchSize: 3})
	s := f.once(m)
	require.Equal(t, []string{"1", "14"}, f.events("aggregate_version"))
	require.EqualValues(t, 2, s.Moved)
	require.EqualValues(t, 13, s.Left)
	require.Equal(t, 13, f.count("old"))
	reasons := map[string]string{}
	require.True(t, slices.IsSortedFunc(s.Problems, func(a, b adopt.Problem) int {
		return cmp.Or(len(a.At)-len(b.At), strings.Compare(a.At, b.At))
	}), "they are in the order of the table: %v", s.Problems)
	for _, p := range s.Problems {
		require.Regexp(t, `^\(0,\d+\)$`, p.At)
		reasons[p.Row+" "+p.At] = p.Reason
	}
	for row, want := range map[string]string{
		"2 (0,2)": "the payload is not valid JSON: unexpected end of JSON input", "4 (0,4)": "the topic is NULL or empty", " (0,6)": "the id is NULL or empty",
		"8 (0,8)": "AggregateID has 300 bytes, at most 255 are allowed", "9 (0,9)": `Topic must not contain "/"`, "10 (0,10)": "the payload is NULL",
		"11 (0,11)": "the metadata is not a JSON object", "12 (0,12)": `the aggregate version "x" is not a whole number`,
		"13 (0,13)": "AggregateID is empty", " (0,15)": "the id is NULL or empty",
	} {
		require.Contains(t, reasons[row], want, row)
		delete(reasons, row)
	}
	require.Empty(t, reasons)

	f.exec(`UPDATE old SET payload = '{"n":2}' WHERE id = '2'`)
	f.exec(`DELETE FROM old WHERE topic = ''`)
	require.EqualValues(t, 5, f.once(m).Moved)
	require.Equal(t, []string{`a {"n":1}`, `i 14`, `a {"n":2}`, `a {"n":3}`, `b 5`}, f.events("aggregate_id, convert_from(payload, 'UTF8')"))
}

// A row without an order that cannot be mapped holds up no other.
func TestProblemsWithoutOrder(t *testing.T) {
	f := newFixture(t, `CREATE TABLE old (id int, payload text)`)
	f.exec(`INSERT INTO old VALUES (1, 'x'), (2, '2'), (3, 'y'), (4, '4')`)
	s := f.once(f.moverOf(f.mapping(`{table: old, id: "{id}", topic: t, payload: "{payload}", order: [id], delete: true}`), &adopt.Config{BatchSize: 1}))
	require.EqualValues(t, 2, s.Left)
	require.Len(t, s.Problems, 2)
	require.Equal(t, []string{"2", "4"}, f.events("convert_from(payload, 'UTF8')"))
}

// A mapping that fits no row ends with an error, and not with a list of all rows.
func TestMappingThatFitsNoRow(t *testing.T) {
	f := newFixture(t, orders)
	f.exec(`INSERT INTO old (order_id, payload) SELECT i, 'no json' FROM generate_series(1, 10001) i`)
	_, err := f.moverOf(f.mapping(mapOrders), &adopt.Config{BatchSize: 10_000}).Once(t.Context())
	require.ErrorContains(t, err, `more than 10000 rows of `+f.db.Schema+`.old cannot be adopted, such as row "1": the payload is not valid JSON`)
	require.Zero(t, f.count("outbox"))
}

// A mark that leaves the row unsent would move it again and again.
func TestMarkThatLeavesRowsUnsent(t *testing.T) {
	f := newFixture(t, orders)
	f.exec(`INSERT INTO old (order_id, payload) VALUES ('a', '1')`)
	_, err := f.mover(strings.Replace(mapOrders, "mark: {sent_at: now()}", "mark: {created_at: now()}", 1)).Once(t.Context())
	require.ErrorContains(t, err, "a row that was marked still counts as unsent")
	require.Zero(t, f.count("outbox"))
}

// A trigger of the old table that keeps rows from being changed is noticed, and nothing is moved.
func TestRowsThatCannotBeMarked(t *testing.T) {
	f := newFixture(t, orders)
	f.exec(`CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`)
	f.exec(`CREATE TRIGGER keep BEFORE UPDATE ON old FOR EACH ROW EXECUTE FUNCTION keep()`)
	f.exec(`INSERT INTO old (order_id, payload) VALUES ('a', '1')`)
	_, err := f.mover(mapOrders).Once(t.Context())
	require.ErrorContains(t, err, "1 rows were read and 0 were marked")
	require.Zero(t, f.count("outbox"))
}

// Several movers of one table take turns: each row is moved once, in the order of the rows.
func TestSeveralMovers(t *testing.T) {
	f := newFixture(t, orders)
	const rows = 600
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 3)
	for range 3 {
		m := f.moverOf(f.mapping(mapOrders), &adopt.Config{BatchSize: 7, Interval: time.Millisecond})
		go func() { ended <- m.Run(ctx) }()
	}
	for i := range rows {
		f.exec(`INSERT INTO old (order_id, payload) VALUES (?, ?)`, fmt.Sprint(i%5), fmt.Sprint(i))
	}
	await.True(t, func() bool { return f.count("old WHERE sent_at IS NULL") == 0 }, "all rows are moved")
	stop()
	for range 3 {
		require.NoError(t, await.Receive(t, ended, "a mover ends"))
	}
	payloads := f.events("convert_from(payload, 'UTF8')")
	require.Len(t, payloads, rows)
	for i, payload := range payloads {
		require.Equal(t, fmt.Sprint(i), payload)
	}
}

// While another process has its turn, a mover waits.
func TestTurns(t *testing.T) {
	f := newFixture(t, orders)
	book := &logbook.Book{}
	f.store = outbox.NewStore(f.db.DB, &outbox.Config{Source: "shop", Telemetry: telemetry.Config{Logger: book.Logger()}})
	f.exec(`INSERT INTO old (order_id, payload) VALUES ('a', '1')`)
	other, err := f.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = other.ExecContext(t.Context(), `SELECT pg_advisory_xact_lock(hashtextextended('oncebox.adopt.' || ?, 0))`, f.db.Schema+".old")
	require.NoError(t, err)
	m, moved := f.mover(mapOrders), make(chan adopt.Summary, 1)
	go func() {
		s, _ := m.Once(t.Context())
		moved <- s
	}()
	await.True(t, func() bool { return book.Count("oncebox: rows wait to be adopted") > 0 }, "the mover finds that it is not its turn")
	require.Zero(t, f.count("outbox"))
	require.NoError(t, other.Commit())
	require.EqualValues(t, 1, await.Receive(t, moved, "it moves the row").Moved)
}

// A time that no event can have is not set.
func TestInfiniteTimes(t *testing.T) {
	f := newFixture(t, orders)
	f.exec(`INSERT INTO old (order_id, payload, created_at) VALUES ('a', '1', 'infinity'), ('a', '2', '2020-11-27 10:00Z')`)
	require.EqualValues(t, 2, f.once(f.mover(mapOrders)).Moved)
	require.Equal(t, []string{"t", "f"}, f.events("occurred_at > created_at - interval '1 hour'"))
}

// A row that somebody locks delays the rows, and is not passed.
func TestRowsAreNotPassed(t *testing.T) {
	f := newFixture(t, orders)
	f.exec(`INSERT INTO old (order_id, payload) VALUES ('a', '1'), ('a', '2')`)
	other, err := f.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = other.ExecContext(t.Context(), `SELECT FROM old WHERE id = 1 FOR UPDATE`)
	require.NoError(t, err)
	moved := make(chan adopt.Summary, 1)
	m := f.mover(mapOrders)
	go func() {
		s, _ := m.Once(t.Context())
		moved <- s
	}()
	await.True(t, func() bool {
		return f.count("pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%FROM \""+f.db.Schema+"\".\"old\" r%'") == 1
	},
		"the mover waits for the row")
	require.NoError(t, other.Commit())
	require.EqualValues(t, 2, await.Receive(t, moved, "both are moved").Moved)
	require.Equal(t, []string{"1", "2"}, f.events("convert_from(payload, 'UTF8')"))
}

// The old table may be called outbox and have any schema, also the one that oncebox would have taken: then oncebox has a schema of its own.
func TestTableNamedOutbox(t *testing.T) {
	f := newFixture(t, `SELECT 1`)
	f.exec(`CREATE SCHEMA ` + f.db.Schema + `_app`)
	defer f.exec(`DROP SCHEMA ` + f.db.Schema + `_app CASCADE`)
	f.exec(strings.Replace(orders, "TABLE old", "TABLE "+f.db.Schema+"_app.outbox", 1))
	f.exec(`INSERT INTO ` + f.db.Schema + `_app.outbox (order_id, payload) VALUES ('a', '1')`)
	require.EqualValues(t, 1, f.once(f.mover(strings.Replace(mapOrders, "old", f.db.Schema+"_app.outbox", 1))).Moved)
	require.Equal(t, []string{"1"}, f.events("convert_from(payload, 'UTF8')"))
}

// The rows of a partitioned table are in several places with equal ctids.
func TestPartitionedTable(t *testing.T) {
	f := newFixture(t, `CREATE TABLE old (id int, order_id text, payload text, sent_at timestamptz, created_at timestamptz, PRIMARY KEY (id))
		PARTITION BY LIST (id)`)
	f.exec(`CREATE TABLE old_1 PARTITION OF old FOR VALUES IN (1, 3)`)
	f.exec(`CREATE TABLE old_2 PARTITION OF old FOR VALUES IN (2, 4)`)
	f.exec(`INSERT INTO old SELECT i, 'a', CASE i WHEN 4 THEN 'bad' ELSE i::text END FROM generate_series(1, 4) i`)
	s := f.once(f.mover(mapOrders))
	require.EqualValues(t, 3, s.Moved)
	require.EqualValues(t, 1, s.Left)
	require.Equal(t, 1, f.count("old WHERE id = 4 AND sent_at IS NULL"))
	require.Equal(t, []string{"1", "2", "3"}, f.events("convert_from(payload, 'UTF8')"))
}

// A row that was mended while a mover runs is moved, and so are the rows behind it.
func TestMendedWhileItRuns(t *testing.T) {
	f := newFixture(t, orders)
	f.exec(`INSERT INTO old (order_id, payload) VALUES ('a', 'bad'), ('a', '2')`)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	m := f.moverOf(f.mapping(mapOrders), &adopt.Config{Interval: time.Millisecond, Recheck: time.Millisecond})
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	f.exec(`INSERT INTO old (order_id, payload) VALUES ('b', '3')`)
	await.True(t, func() bool { return f.count("outbox") == 1 }, "the row of the other key is moved")
	f.exec(`UPDATE old SET payload = '1' WHERE id = 1`)
	await.True(t, func() bool { return f.count("outbox") == 3 }, "the mended row is moved")
	stop()
	require.NoError(t, await.Receive(t, ended, "it ends"))
	require.Equal(t, []string{"3", "1", "2"}, f.events("convert_from(payload, 'UTF8')"))
}

// Sessions of the mover end in the middle of its work, again and again. Each row is moved once, in its turn.
func TestSessionsThatEnd(t *testing.T) {
	f := newFixture(t, orders)
	rows, kills := 0, 0
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	pool := f.db.Another(t)
	store := outbox.NewStore(pool, &outbox.Config{Source: "shop", Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)}})
	m, err := adopt.New(ctx, store, f.mapping(mapOrders), &adopt.Config{BatchSize: 5, Interval: time.Millisecond})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	for ; rows < 200 || kills < 5; rows++ {
		f.exec(`INSERT INTO old (order_id, payload) VALUES (?, ?)`, fmt.Sprint(rows%5), fmt.Sprint(rows))
		if rows%4 == 0 { // the sessions that use the table just now, but for this one
			kills += f.count(`(SELECT pg_terminate_backend(pid) FROM pg_locks WHERE relation = 'old'::regclass AND pid <> pg_backend_pid()) killed`)
		}
	}
	await.True(t, func() bool { return f.count("old WHERE sent_at IS NULL") == 0 }, "all rows are moved")
	stop()
	require.NoError(t, await.Receive(t, ended, "the mover ends"))
	payloads := f.events("convert_from(payload, 'UTF8')")
	require.Len(t, payloads, rows)
	for i, payload := range payloads {
		require.Equal(t, fmt.Sprint(i), payload)
	}
}
