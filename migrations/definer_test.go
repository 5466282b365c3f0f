package migrations_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/migrations"
)

// Whatever tool applies the files.
func TestFunctionsWithTheOwnersRightsSearchPgCatalogOnly(t *testing.T) {
	plain := pgtest.Open(t)
	for _, name := range files(t) {
		_, err := plain.DB.DB.ExecContext(t.Context(), text(t, name))
		require.NoError(t, err)
	}
	for by, opened := range map[string]*pgtest.DB{"Up": pgtest.Migrated(t), "plain files": plain} {
		require.Equal(t, []string{
			"inbox_drop_partition search_path=pg_catalog, pg_temp",
			"inbox_empty_partition search_path=pg_catalog, pg_temp",
			"inbox_make_partition search_path=pg_catalog, pg_temp",
			"oncebox_add search_path=pg_catalog, pg_temp",
			"outbox_claimed search_path=pg_catalog, pg_temp",
			"outbox_drop_partition search_path=pg_catalog, pg_temp",
			"outbox_first_lane search_path=pg_catalog, pg_temp",
			"outbox_make_partition search_path=pg_catalog, pg_temp",
		}, scanAll[string](t, opened, `
			SELECT concat_ws(' ', proname, (SELECT s FROM unnest(proconfig) s WHERE s LIKE 'search_path=%'))
			FROM pg_proc WHERE pronamespace = ?::regnamespace AND prosecdef ORDER BY 1`, opened.Schema), by)
	}
	require.Zero(t, scan[int](t, plain, `SELECT count(*) FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid
		WHERE c.relnamespace = ?::regnamespace AND NOT tgisinternal`, plain.Schema), "triggers run with the rights of the role that writes")
}

// Functions and operators whose arguments fit better than the ones of pg_catalog. Each of them ends the statement that calls it.
var planted = []string{
	"CREATE FUNCTION captured(what text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'captured: % as %', what, current_user; END $$",
	"CREATE FUNCTION to_char(date, text) RETURNS text LANGUAGE sql AS $$ SELECT captured('to_char') $$",
	"CREATE FUNCTION format(text, text) RETURNS text LANGUAGE sql AS $$ SELECT captured('format') $$",
	"CREATE FUNCTION format(text, regclass) RETURNS text LANGUAGE sql AS $$ SELECT captured('format') $$",
	"CREATE FUNCTION format(text, text, regclass) RETURNS text LANGUAGE sql AS $$ SELECT captured('format') $$",
	"CREATE FUNCTION format(text, regclass, regclass) RETURNS text LANGUAGE sql AS $$ SELECT captured('format') $$",
	"CREATE FUNCTION format(text, timestamptz, timestamptz, text) RETURNS text LANGUAGE sql AS $$ SELECT captured('format') $$",
	"CREATE FUNCTION format(text, uuid, uuid, text) RETURNS text LANGUAGE sql AS $$ SELECT captured('format') $$",
	"CREATE FUNCTION equal(oid, regclass) RETURNS boolean LANGUAGE sql AS $$ SELECT captured('=') IS NULL $$",
	"CREATE OPERATOR = (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = equal)",
	"CREATE FUNCTION times(smallint, smallint) RETURNS integer LANGUAGE sql AS $$ SELECT length(captured('*')) $$",
	"CREATE OPERATOR * (LEFTARG = smallint, RIGHTARG = smallint, FUNCTION = times)",
}

// In a schema in which everybody may create functions, no caller can make a function of their own run with
// the owner's rights.
func TestPlantedFunctionsAreNotCalled(t *testing.T) {
	opened := pgtest.Migrated(t)
	_, attacker := role(t, opened, "attacker")
	exec(t, opened, "GRANT USAGE, CREATE ON SCHEMA "+opened.Schema+" TO PUBLIC")
	exec(t, opened, "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA "+opened.Schema+" TO PUBLIC")
	for _, statement := range planted {
		exec(t, attacker, statement)
	}
	_, err := attacker.ExecContext(t.Context(), "SELECT to_char('2026-11-21'::date, 'YYYY')")
	require.ErrorContains(t, err, "captured: to_char", "they win where the schema is searched")

	_, caller := role(t, opened, "caller")
	exec(t, opened, "INSERT INTO outbox_tenant (tenant_id) VALUES ('t')")
	for _, p := range bothTables() {
		exec(t, opened, p.insert, "2020-01-01 12:00:00Z")
		require.True(t, scan[bool](t, caller, "SELECT "+p.prefix()+"_make_partition('2020-01-01'::date, '1 min'::interval)"))
		require.False(t, scan[bool](t, caller, "SELECT "+p.prefix()+"_make_partition('2020-01-01'::date, '1 min'::interval)"))
	}
	require.True(t, scan[bool](t, caller, "SELECT outbox_drop_partition('2020-01-01'::date, '1 min'::interval)"))
	require.True(t, scan[bool](t, caller, "SELECT inbox_empty_partition('2020-01-01'::date, '0'::interval, '1 min'::interval)"))
	require.True(t, scan[bool](t, caller, "SELECT inbox_drop_partition('2020-01-01'::date, '1 min'::interval)"))
	require.Zero(t, scan[int](t, caller, "SELECT outbox_first_lane('t'::text)"))
	require.NotEmpty(t, scan[string](t, caller, "SELECT oncebox_add('order', '{}', 'e', 'order', 'a', 't', dedup_key => 'k', source => 's')::text"))
}

// The triggers of a table run with the rights of the role that writes to it, here the owner of ours.
func TestChildOfAnotherRoleIsRefused(t *testing.T) {
	forBoth(t, func(t *testing.T, opened *pgtest.DB, p partitioned) {
		_, attacker := role(t, opened, "attacker")
		exec(t, opened, "GRANT USAGE, CREATE ON SCHEMA "+opened.Schema+" TO PUBLIC")
		exec(t, opened, "GRANT SELECT ON "+p.table+" TO PUBLIC")
		exec(t, attacker, "CREATE TABLE "+p.table+"_20261121 (LIKE "+p.table+")")
		exec(t, attacker, `CREATE FUNCTION captured() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'captured as %', current_user; END $$`)
		exec(t, attacker, "CREATE TRIGGER captured BEFORE INSERT ON "+p.table+"_20261121 EXECUTE FUNCTION captured()")
		_, err := opened.ExecContext(t.Context(), "SELECT "+p.prefix()+"_make_partition('2026-11-21')")
		require.Equal(t, insufficientPrivilege, pgerr.Code(err))
		require.ErrorContains(t, err, p.table+"_20261121 and "+p.table+" must belong to the same role")
		require.True(t, p.make(t, opened, "2026-11-22"))
	})
}

func TestVerifyWarnsWhereEverybodyMayCreate(t *testing.T) {
	opened := pgtest.Migrated(t)
	var out bytes.Buffer
	cfg := &migrations.Config{Logger: slog.New(slog.NewTextHandler(&out, nil))}
	require.NoError(t, migrations.Verify(t.Context(), opened.DB, cfg))
	require.Empty(t, out.String())

	exec(t, opened, "GRANT CREATE ON SCHEMA "+opened.Schema+" TO PUBLIC")
	require.NoError(t, migrations.Verify(t.Context(), opened.DB, cfg))
	require.Contains(t, out.String(), "level=WARN")
	require.Contains(t, out.String(), `REVOKE CREATE ON SCHEMA \"`+opened.Schema+`\" FROM PUBLIC`)
	require.Contains(t, out.String(), opened.Schema)
}
