package adopt_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/outbox/adopt"
)

// While rows are forwarded, the old table may change. What the trigger needs, PostgreSQL keeps from being dropped: otherwise each writer would fail.
func TestChangesOfAForwardedTable(t *testing.T) {
	for name, c := range map[string]struct {
		ddl, refused string
		table        string // the name of the table afterwards
		column       string // the name of order_id afterwards
	}{
		"a new column":              {ddl: `ALTER TABLE old ADD COLUMN more text NOT NULL DEFAULT 'x'`},
		"a column is renamed":       {ddl: `ALTER TABLE old RENAME COLUMN order_id TO "orderId"`, column: `"orderId"`},
		"the mark is renamed":       {ddl: `ALTER TABLE old RENAME COLUMN sent_at TO done_at`},
		"the table is renamed":      {ddl: `ALTER TABLE old RENAME TO older`, table: "older"},
		"another column is dropped": {ddl: `ALTER TABLE old DROP COLUMN other`},
		"a column is dropped":       {ddl: `ALTER TABLE old DROP COLUMN order_id`, refused: "cannot drop column order_id of table old"},
		"a type is changed":         {ddl: `ALTER TABLE old ALTER COLUMN order_id TYPE varchar(9)`, refused: "cannot alter type of a column used by a view"},
		"the table is dropped":      {ddl: `DROP TABLE old`, refused: "cannot drop table old because other objects depend on it"},
		"the order is dropped":      {ddl: `ALTER TABLE old DROP COLUMN created_at`, refused: "cannot drop column created_at"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, strings.Replace(orders, "order_id text", "order_id text, other int", 1))
			m := f.mover(mapOrders)
			require.NoError(t, m.Forward(t.Context()))
			f.write("a", "1")
			_, err := f.db.ExecContext(t.Context(), c.ddl)
			if c.refused != "" {
				require.ErrorContains(t, err, c.refused)
				f.write("a", "2")
				require.NoError(t, m.StopForwarding(t.Context()))
				f.exec(c.ddl)
				return
			}
			require.NoError(t, err)
			table, column := "old", "order_id"
			if c.table != "" {
				table = c.table
			}
			if c.column != "" {
				column = c.column
			}
			f.exec(`INSERT INTO ` + table + ` (` + column + `, payload) VALUES ('a', '2'), ('a', 'bad')`)
			require.Equal(t, []string{"1", "2", "bad"}, f.events("convert_from(payload, 'UTF8')"))
		})
	}
}

// A table that was renamed can be forwarded by its new name, and nothing of the old one is left.
func TestForwardAgainAfterARename(t *testing.T) {
	f := newFixture(t, orders)
	require.NoError(t, f.mover(mapOrders).Forward(t.Context()))
	f.exec(`ALTER TABLE old RENAME TO older`)
	m := f.mover(strings.Replace(mapOrders, "table: old", "table: older", 1))
	require.True(t, isForwarding(t, m))
	require.NoError(t, m.Forward(t.Context()))
	f.exec(`INSERT INTO older (order_id, payload) VALUES ('a', '1')`)
	require.Equal(t, []string{"1"}, f.events("convert_from(payload, 'UTF8')"))
	require.NoError(t, m.StopForwarding(t.Context()))
	const left = `pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = current_schema() AND p.proname LIKE 'oncebox\_forward%'`
	require.Zero(t, f.count(left))
	f.exec(`DROP TABLE older`)
}

// A table that was dropped, with all that depends on it, is forgotten.
func TestForgetATableThatWasDropped(t *testing.T) {
	f := newFixture(t, orders)
	m := f.mover(mapOrders)
	require.NoError(t, m.Forward(t.Context()))
	mapping := f.mapping(mapOrders)
	require.NoError(t, adopt.Forget(t.Context(), f.store, mapping), "the table is there")
	require.Len(t, f.states(), 1)
	f.exec(`DROP TABLE old CASCADE`)
	require.Contains(t, f.states()[0].Fault, "there is no table")
	_, err := adopt.New(t.Context(), f.store, mapping, nil)
	require.ErrorIs(t, err, adopt.ErrNoTable)
	require.NoError(t, adopt.Forget(t.Context(), f.store, mapping))
	require.Empty(t, f.states())
	require.NoError(t, adopt.Forget(t.Context(), f.store, mapping), "twice")
}

// The rows of a partitioned table are forwarded, also those of partitions that come later.
func TestForwardOfAPartitionedTable(t *testing.T) {
	f := newFixture(t, `CREATE TABLE old (id int, order_id text, payload text, sent_at timestamptz, created_at timestamptz, PRIMARY KEY (id))
		PARTITION BY LIST (id)`)
	f.exec(`CREATE TABLE old_1 PARTITION OF old FOR VALUES IN (1, 3)`)
	m := f.mover(mapOrders)
	f.exec(`INSERT INTO old (id, order_id, payload) VALUES (1, 'a', '1')`)
	require.NoError(t, m.Forward(t.Context()))
	f.exec(`CREATE TABLE old_2 PARTITION OF old FOR VALUES IN (2, 4)`)
	f.exec(`INSERT INTO old (id, order_id, payload) VALUES (2, 'a', '2'), (3, 'a', '3')`)
	f.exec(`INSERT INTO old_2 (id, order_id, payload) VALUES (4, 'a', '4')`)
	require.Equal(t, []string{"1", "2", "3", "4"}, f.events("convert_from(payload, 'UTF8')"))
	require.True(t, isForwarding(t, m))
	require.NoError(t, m.StopForwarding(t.Context()))
	require.Zero(t, f.count("pg_trigger WHERE tgname = 'oncebox_forward' AND tgrelid = 'old_1'::regclass"))
}

// Rows that the role cannot see would never be published. So it is refused, before anything is moved.
func TestRowSecurity(t *testing.T) {
	f := newFixture(t, orders)
	role := f.db.Schema + "_reader"
	f.exec("CREATE ROLE " + role)
	defer f.exec("DROP OWNED BY " + role + "; DROP ROLE " + role)
	f.exec("GRANT USAGE ON SCHEMA " + f.db.Schema + " TO " + role + "; GRANT ALL ON ALL TABLES IN SCHEMA " + f.db.Schema + " TO " + role +
		"; GRANT ALL ON ALL SEQUENCES IN SCHEMA " + f.db.Schema + " TO " + role)
	f.exec("ALTER TABLE old ENABLE ROW LEVEL SECURITY; CREATE POLICY visible ON old USING (order_id = 'a')")
	f.write("b", "1")
	require.EqualValues(t, 1, f.once(f.mover(mapOrders)).Moved, "the owner sees all rows")
	db := f.db.Another(t)
	db.SetMaxOpenConns(1)
	_, err := db.ExecContext(t.Context(), "SET ROLE "+role)
	require.NoError(t, err)
	_, err = adopt.New(t.Context(), f.storeOf(db, f.store.Telemetry()), f.mapping(mapOrders), nil)
	require.ErrorContains(t, err, "row security hides rows of "+f.db.Schema+".old from this role")
	f.exec("CREATE VIEW seen AS SELECT * FROM old")
	_, err = adopt.New(t.Context(), f.store, f.mapping(strings.Replace(mapOrders, "table: old", "table: seen", 1)), nil)
	require.ErrorContains(t, err, f.db.Schema+".seen is a view or a foreign table")
}

// What a run would end with, the preview says: it moves a few rows and rolls that back.
func TestPreviewSaysWhatTheRunSays(t *testing.T) {
	for name, c := range map[string]struct{ ddl, mapping, want string }{
		"the mark breaks a constraint": {
			`ALTER TABLE old ADD CHECK (sent_at IS NULL OR order_id = 'b')`, mapOrders, "violates check constraint",
		},
		"the mark leaves the row unsent": {
			`SELECT 1`, strings.Replace(mapOrders, "mark: {sent_at: now()}", "mark: {created_at: now()}", 1), "still counts as unsent",
		},
		"a trigger keeps rows": {
			`CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
			CREATE TRIGGER keep BEFORE UPDATE ON old FOR EACH ROW EXECUTE FUNCTION keep()`, mapOrders, "1 rows were read and 0 were marked",
		},
		"a constant does not fit": {`SELECT 1`, strings.Replace(mapOrders, "mark: {", "mark: {id: many, ", 1), `invalid input syntax for type bigint: "many"`},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, orders)
			f.exec(c.ddl)
			f.write("a", "1")
			m := f.mover(c.mapping)
			p, err := m.Preview(t.Context(), 1)
			require.NoError(t, err)
			require.Len(t, p.First, 1)
			require.ErrorContains(t, p.Fault, c.want)
			_, err = m.Once(t.Context())
			require.ErrorContains(t, err, c.want)
			require.Zero(t, f.count("outbox"))
			require.Error(t, m.Forward(t.Context()))
			require.False(t, isForwarding(t, m))
		})
	}
}
