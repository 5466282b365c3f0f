package migrations_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/migrations"
)

// differences are changes that somebody made, and what Verify says of them, without the mend. {schema} stands for the schema.
var differences = []struct {
	change string
	says   []string
}{
	{"DROP INDEX outbox_held_due", []string{"index outbox_held_due is missing"}},
	{"DROP INDEX outbox_held_due; CREATE INDEX outbox_held_due ON outbox_held (lane, retry_after)", []string{"index outbox_held_due is " +
		"CREATE INDEX outbox_held_due ON {schema}.outbox_held USING btree (lane, retry_after), should be " +
		"CREATE INDEX outbox_held_due ON {schema}.outbox_held USING btree (lane, retry_after, seq)"}},
	{"UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'outbox_held_due'::regclass", []string{"index outbox_held_due is not valid"}},
	{"CREATE UNIQUE INDEX mine ON outbox (topic)", []string{"index mine is not ours and may refuse rows, because it is unique"}},
	{"CREATE UNIQUE INDEX mine ON inbox (message_key, consumer)", []string{"index mine is not ours and may refuse rows, because it is unique"}},
	{"ALTER TABLE outbox_lane DROP COLUMN picked CASCADE", []string{"column outbox_lane.picked is missing", "view outbox_messages is missing"}},
	{"ALTER TABLE outbox_audit ALTER COLUMN events TYPE integer", []string{"column outbox_audit.events is integer, should be bigint"}},
	{"ALTER TABLE inbox_dead ALTER COLUMN key_lock DROP NOT NULL", []string{"column inbox_dead.key_lock may be NULL, and should not"}},
	{"ALTER TABLE inbox_dead ALTER COLUMN ordering_key SET NOT NULL", []string{"column inbox_dead.ordering_key refuses NULL, and should not"}},
	{"ALTER TABLE inbox_parked ALTER COLUMN seq DROP DEFAULT",
		[]string{"column inbox_parked.seq has no default, should have DEFAULT nextval('{schema}.inbox_seq'::regclass)"}},
	{"ALTER TABLE outbox_block ALTER COLUMN head_seq SET DEFAULT 7", []string{"column outbox_block.head_seq has DEFAULT 7, should have no default"}},
	{"ALTER TABLE outbox_audit ALTER COLUMN id DROP IDENTITY",
		[]string{"column outbox_audit.id has no default, should have GENERATED ALWAYS AS IDENTITY"}},
	{`ALTER TABLE outbox ADD COLUMN "Mine" integer NOT NULL`, []string{`column outbox."Mine" is not ours and refuses rows without it`}},
	{"ALTER TABLE inbox_dead DROP CONSTRAINT inbox_dead_pkey", []string{"constraint inbox_dead_pkey of inbox_dead is missing"}},
	{"ALTER TABLE outbox_tenant DROP CONSTRAINT outbox_tenant_grp_check, ADD CONSTRAINT outbox_tenant_grp_check CHECK (grp > 0)",
		[]string{"constraint outbox_tenant_grp_check of outbox_tenant is CHECK ((grp > 0)), should be CHECK ((grp >= 0))"}},
	{"ALTER TABLE inbox ADD CONSTRAINT mine CHECK (length(consumer) < 9)",
		[]string{"constraint mine of inbox is not ours and may refuse rows, CHECK ((length(consumer) < 9))"}},
	{"ALTER TABLE inbox DETACH PARTITION inbox_default", []string{"partition inbox_default of inbox is missing"}},
	{"ALTER TABLE outbox_incarnation SET LOGGED", []string{"table outbox_incarnation is permanent, should be unlogged"}},
	{"ALTER TABLE outbox RESET (autovacuum_vacuum_threshold)", []string{"option autovacuum_vacuum_threshold of outbox is missing"}},
	{"ALTER TABLE outbox SET (autovacuum_enabled = off)", []string{"option autovacuum_enabled of outbox is off, so dead rows stay"}},
	{"ALTER TABLE inbox ENABLE ROW LEVEL SECURITY", []string{"table inbox has row level security, which may hide rows"}},
	{"ALTER SEQUENCE outbox_seq CACHE 20", []string{"sequence outbox_seq is " +
		"AS bigint INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 CACHE 20 NO CYCLE, should be " +
		"AS bigint INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 CACHE 1 NO CYCLE"}},
	{"CREATE TABLE copies AS SELECT * FROM outbox; CREATE RULE mine AS ON INSERT TO outbox DO ALSO NOTHING", []string{"rule mine on outbox is not ours"}},
	{"CREATE TRIGGER mine BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
		[]string{"trigger mine on outbox is not ours"}},
	{"CREATE TRIGGER mine BEFORE UPDATE ON inbox FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
		[]string{"trigger mine on inbox is not ours"}},
	{"CREATE OR REPLACE VIEW outbox_messages AS SELECT id, tenant_id, aggregate_id, aggregate_type, aggregate_version, event_type, topic, occurred_at, " +
		"payload, event_metadata, routing_key, schema_id, schema_version, 'NEW' AS status, retry_count::integer, NULL::timestamptz AS retry_after, " +
		"NULL::text AS error_message, created_at, NULL::timestamptz AS sent_at, seq AS sequence FROM outbox",
		[]string{"view outbox_messages reads aggregate_id, aggregate_type"}},
	{"DROP VIEW outbox_messages; CREATE VIEW outbox_messages AS SELECT 1 AS one",
		[]string{"view outbox_messages reads nothing of outbox, should read aggregate_id"}},
	{"CREATE OR REPLACE FUNCTION idempotency_taken() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN 'fine'; END $$",
		[]string{"function idempotency_taken() has another body"}},
	{"ALTER FUNCTION outbox_first_lane(text) SECURITY INVOKER", []string{"function outbox_first_lane(text) is (tenant text) RETURNS integer LANGUAGE plpgsql " +
		"VOLATILE SET search_path=pg_catalog, pg_temp, should be (tenant text) RETURNS integer LANGUAGE plpgsql " +
		"VOLATILE SECURITY DEFINER SET search_path=pg_catalog, pg_temp"}},
	{"DROP FUNCTION inbox_gate; CREATE FUNCTION inbox_gate(text, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
		[]string{"function inbox_gate(text, bigint) is (text, bigint) RETURNS boolean LANGUAGE sql VOLATILE, " +
			"should be (p_name text, p_generation bigint) RETURNS SETOF boolean"}},
	{"DROP FUNCTION outbox_drop_partition", []string{"function outbox_drop_partition(date, interval) is missing"}},
	{"CREATE FUNCTION inbox_enter(text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
		[]string{"function inbox_enter(text) is not ours, and may be called in place of the function of this name"}},
	{"GRANT EXECUTE ON FUNCTION outbox_make_partition TO PUBLIC",
		[]string{"function outbox_make_partition(date, interval) may be called by every role, with the rights of its owner"}},
	{"ALTER TABLE outbox_block OWNER TO {other}", []string{"table outbox_block belongs to {other}, the others to {owner}"}},
	{"ALTER FUNCTION inbox_enter OWNER TO {other}",
		[]string{"function inbox_enter(uuid, text, text, text, bigint, integer) belongs to {other}, the others to {owner}"}},
}

// Each difference is named, and what is printed behind it puts it right. The name of the schema may be any.
func TestEachDifferenceIsNamedWithItsMend(t *testing.T) {
	opened := pgtest.Open(t)
	cfg := &migrations.Config{Schema: opened.Schema + ` Ünï'; -- "x" $1 $$ %s\`, Logger: quiet().Logger}
	ident := `"` + strings.ReplaceAll(cfg.Schema, `"`, `""`) + `"`
	other, _ := role(t, opened, "other")
	require.NoError(t, migrations.Up(t.Context(), opened.DB, cfg))
	t.Cleanup(func() { _, _ = opened.Exec("DROP SCHEMA " + ident + " CASCADE") })
	fill := strings.NewReplacer("'{schema}", "'"+strings.ReplaceAll(ident, "'", "''"), "{schema}", ident,
		"{other}", other, "{owner}", scan[string](t, opened, "SELECT quote_ident(current_user)"))
	conn, err := opened.DB.DB.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	run := func(statement string) {
		t.Helper()
		_, err := conn.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	require.NoError(t, migrations.Verify(t.Context(), opened.DB, cfg))
	for _, d := range differences {
		run("SET search_path = " + ident)
		run(fill.Replace(d.change))
		run("SET search_path = pg_catalog")
		var found *migrations.DifferenceError
		require.ErrorAs(t, migrations.Verify(t.Context(), opened.DB, cfg), &found, d.change)
		require.Len(t, found.Differences, len(d.says), "%s: %v", d.change, found)
		for n, difference := range found.Differences {
			require.True(t, strings.HasPrefix(difference.Object+" "+difference.Problem, fill.Replace(d.says[n])), "%s: %s", d.change, difference)
			require.Contains(t, found.Error(), "\n\t"+difference.Object+" "+difference.Problem+": ")
			run(difference.Mend)
		}
		require.NoError(t, migrations.Verify(t.Context(), opened.DB, cfg), d.change)
	}
}

// A service does not start on tables that have lost an index.
func TestAllDifferencesAreNamedAtOnce(t *testing.T) {
	opened := pgtest.Migrated(t)
	for _, change := range []string{
		"DROP INDEX inbox_dead_key", "DROP TABLE outbox_dedup", "DROP SEQUENCE outbox_moves", "ALTER TABLE outbox ALTER COLUMN id DROP NOT NULL",
	} {
		exec(t, opened, change)
	}
	err := migrations.Verify(t.Context(), opened.DB, nil)
	var found *migrations.DifferenceError
	require.ErrorAs(t, err, &found)
	require.Equal(t, opened.Schema, found.Schema)
	const lost = ": no statement mends that: restore it with its rows from a backup, or make the tables anew in an empty schema"
	require.Equal(t, []string{
		fmt.Sprintf(`migrations: schema %q is not as migrations.Up made it; have the owner of its tables run what follows each colon:`, opened.Schema),
		"\tcolumn outbox.id may be NULL, and should not: ALTER TABLE " + opened.Schema + ".outbox ALTER COLUMN id SET NOT NULL",
		"\tindex inbox_dead_key is missing: CREATE INDEX inbox_dead_key ON " + opened.Schema + ".inbox_dead USING btree (key_lock, seq)",
		"\tsequence outbox_moves is missing" + lost,
		"\ttable outbox_dedup is missing" + lost,
	}, strings.Split(err.Error(), "\n"))
}

// What people add to tables of ours without harm, and what time does to them.
func TestHarmlessAdditionsAreNoDifference(t *testing.T) {
	opened := pgtest.Migrated(t)
	for _, change := range []string{
		"SELECT outbox_make_partition('2026-11-21'), inbox_make_partition('2026-11-21')",
		"CREATE INDEX mine ON outbox_sent (aggregate_id)",
		"ALTER TABLE outbox ADD COLUMN mine text, ADD COLUMN more text NOT NULL DEFAULT ''",
		"ALTER TABLE outbox SET (autovacuum_vacuum_threshold = 5000, parallel_workers = 0)",
		"ALTER TABLE inbox_dead RENAME CONSTRAINT inbox_dead_attempts_check TO tries",
		"CREATE TABLE orders (id int PRIMARY KEY); CREATE FUNCTION orders_of(int) RETURNS int LANGUAGE sql AS 'SELECT 1'",
		"ALTER TABLE outbox_dedup ALTER COLUMN event_id SET STATISTICS 500",
		"COMMENT ON TABLE outbox IS 'ours'",
	} {
		exec(t, opened, change)
	}
	require.NoError(t, migrations.Verify(t.Context(), opened.DB, nil))
	name, reader := role(t, opened, "reader")
	exec(t, opened, "GRANT USAGE ON SCHEMA "+opened.Schema+" TO "+name)
	exec(t, opened, "GRANT SELECT ON oncebox_migrations TO "+name)
	require.NoError(t, migrations.Verify(t.Context(), reader, nil), "the catalog is everybody's to read")
}

// Settings of a session change how PostgreSQL prints definitions.
func TestSettingsOfTheSessionAreNoDifference(t *testing.T) {
	opened := pgtest.Migrated(t)
	other := opened.Schema + "_other"
	exec(t, opened, "CREATE SCHEMA "+other)
	t.Cleanup(func() { _, _ = opened.Exec("DROP SCHEMA " + other + " CASCADE") })
	exec(t, opened, "CREATE TABLE "+other+".idempotency_keys (mine int)")
	exec(t, opened, "CREATE SEQUENCE "+other+".outbox_seq")
	for _, settings := range []map[string]string{
		{"search_path": ""}, {"search_path": other}, {"search_path": opened.Schema + "," + other}, {"IntervalStyle": "iso_8601"}, {"DateStyle": "German"},
		{"quote_all_identifiers": "on"}, {"default_transaction_isolation": "serializable"}, {"default_transaction_read_only": "on"},
		{"TimeZone": "Pacific/Kiritimati"},
		{"default_query_exec_mode": "simple_protocol"}, {"default_query_exec_mode": "cache_statement"},
	} {
		db := pool(t, opened, settings)
		for range 2 {
			require.NoError(t, migrations.Verify(t.Context(), db, &migrations.Config{Schema: opened.Schema}), settings)
		}
		if path, set := settings["search_path"]; set {
			require.Equal(t, path, strings.ReplaceAll(strings.Trim(scan[string](t, db, "SHOW search_path"), `"`), ", ", ","), "it is as it was")
		}
	}
}

// Probes ask often, and a service that runs should not fail for what somebody tries out.
func TestAppliedAsksForFilesOnly(t *testing.T) {
	opened := pgtest.Migrated(t)
	exec(t, opened, "DROP INDEX outbox_held_due")
	require.NoError(t, migrations.Applied(t.Context(), opened.DB, nil))
	exec(t, opened, "DELETE FROM oncebox_migrations WHERE name = ?", slices.Max(files(t)))
	require.ErrorContains(t, migrations.Applied(t.Context(), opened.DB, nil), "call migrations.Up (App.Migrate)")
}
