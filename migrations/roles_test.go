package migrations_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/migrations"
)

// role makes a role without any rights, and a pool whose sessions act as it.
func role(t *testing.T, opened *pgtest.DB, name string) (string, *bun.DB) {
	t.Helper()
	name = opened.Schema + "_" + name
	exec(t, opened, "CREATE ROLE "+name)
	t.Cleanup(func() {
		_, err := opened.Exec("DROP OWNED BY " + name + " CASCADE; DROP ROLE " + name)
		require.NoError(t, err)
	})
	return name, pool(t, opened, map[string]string{"role": name})
}

const insufficientPrivilege = "42501"

func TestUpToDateNeedsNoRights(t *testing.T) {
	opened := pgtest.Migrated(t)
	name, db := role(t, opened, "reader")
	exec(t, opened, "GRANT USAGE ON SCHEMA "+opened.Schema+" TO "+name)
	exec(t, opened, "GRANT SELECT ON oncebox_migrations TO "+name)
	for _, cfg := range []*migrations.Config{nil, {Schema: opened.Schema}} {
		require.NoError(t, migrations.Verify(t.Context(), db, cfg))
		require.NoError(t, migrations.Up(t.Context(), db, cfg))
	}
	exec(t, opened, "DELETE FROM oncebox_migrations WHERE name LIKE '%idempotency%'")
	exec(t, opened, "DROP TABLE idempotency_step, idempotency_keys")
	exec(t, opened, "DROP FUNCTION idempotency_claim, idempotency_settle_step, idempotency_taken")
	err := migrations.Up(t.Context(), db, &migrations.Config{Schema: opened.Schema})
	require.Equal(t, insufficientPrivilege, pgerr.Code(err), "%v", err)
}

// The role may make tables in the schema that somebody made for it, but no schemas.
func TestUpInASchemaThatIsThere(t *testing.T) {
	opened := pgtest.Open(t)
	name, db := role(t, opened, "owner")
	exec(t, opened, "GRANT USAGE, CREATE ON SCHEMA "+opened.Schema+" TO "+name)
	cfg := &migrations.Config{Schema: opened.Schema, Logger: quiet().Logger}
	require.NoError(t, migrations.Up(t.Context(), db, cfg))
	require.True(t, scan[bool](t, db, "SELECT outbox_make_partition('2026-11-21')"))
	require.True(t, scan[bool](t, db, "SELECT inbox_make_partition('2026-11-21')"))

	cfg.Schema += "_other"
	err := migrations.Up(t.Context(), db, cfg)
	require.Equal(t, insufficientPrivilege, pgerr.Code(err))
	require.ErrorContains(t, err, "migrations: create schema")
	require.ErrorContains(t, err, `GRANT CREATE ON DATABASE "`+scan[string](t, db, "SELECT current_database()")+
		`" TO it, or CREATE SCHEMA "`+cfg.Schema+`" AUTHORIZATION it`)

	empty := pgtest.Open(t)
	name, db = role(t, empty, "guest")
	exec(t, empty, "GRANT USAGE ON SCHEMA "+empty.Schema+" TO "+name)
	err = migrations.Up(t.Context(), db, &migrations.Config{Schema: empty.Schema})
	require.Equal(t, insufficientPrivilege, pgerr.Code(err))
	require.ErrorContains(t, err, `GRANT USAGE, CREATE ON SCHEMA "`+empty.Schema+`" TO it`)
}

var partitionCalls = []string{
	"SELECT outbox_make_partition('2026-11-21')",
	"SELECT outbox_drop_partition('2026-11-01')",
	"SELECT inbox_make_partition('2026-11-21')",
	"SELECT inbox_make_partition('2026-11-01')",
	"SELECT inbox_empty_partition('2026-11-01', '1 day')",
	"SELECT inbox_drop_partition('2026-11-01')",
}

func TestFunctionsAreNotForEverybody(t *testing.T) {
	opened := pgtest.Migrated(t)
	name, db := role(t, opened, "somebody")
	exec(t, opened, "GRANT USAGE ON SCHEMA "+opened.Schema+" TO "+name)
	exec(t, opened, "GRANT ALL ON ALL TABLES IN SCHEMA "+opened.Schema+" TO "+name)
	for _, call := range partitionCalls {
		_, err := db.ExecContext(t.Context(), call)
		require.Equal(t, insufficientPrivilege, pgerr.Code(err), call)
		require.ErrorContains(t, err, "permission denied for function")
	}
	require.Empty(t, scanAll[string](t, opened, `
		SELECT p.proname FROM pg_proc p CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
		WHERE p.pronamespace = ?::regnamespace AND p.prosecdef AND a.grantee = 0`, opened.Schema),
		"functions that act with the owner's rights and that PUBLIC may call")
}

// The first thing that a role without rights sees names a GRANT.
func TestRoleWithoutRightsIsToldTheGrant(t *testing.T) {
	opened := pgtest.Migrated(t)
	name, db := role(t, opened, "newcomer")
	exec(t, opened, "GRANT USAGE ON SCHEMA "+opened.Schema+" TO "+name)
	require.ErrorContains(t, migrations.Applied(t.Context(), db, nil), "GRANT SELECT, INSERT, UPDATE, DELETE ON oncebox_migrations TO")
}

// The grants are enough for what the duties do, and no more than that.
func TestGrants(t *testing.T) {
	t.Parallel()
	opened := pgtest.Migrated(t)
	cfg := &migrations.Config{Schema: opened.Schema}
	exec(t, opened, "CREATE TABLE salaries (n int)")
	granted := func(d migrations.Duty) *bun.DB {
		name, db := role(t, opened, string(d))
		missing, err := migrations.MissingGrants(t.Context(), db, cfg, d)
		require.NoError(t, err)
		statements, err := migrations.Grants(t.Context(), opened.DB, cfg, d, name)
		require.NoError(t, err)
		for n, statement := range statements {
			require.NotEmpty(t, missing, "after %d statements", n)
			exec(t, opened, statement)
			missing, err = migrations.MissingGrants(t.Context(), db, cfg, d)
			require.NoError(t, err)
		}
		require.Empty(t, missing)
		_, err = db.ExecContext(t.Context(), "SELECT FROM salaries")
		require.Equal(t, insufficientPrivilege, pgerr.Code(err), "a table of the service's own")
		return db
	}
	otherDB, appDB, relayDB, readerDB := granted(migrations.Caller), granted(migrations.Writer), granted(migrations.Service), granted(migrations.Reader)
	_, err := migrations.Grants(t.Context(), opened.DB, cfg, "king", "x")
	require.ErrorContains(t, err, `there is no duty "king": it is one of [service writer caller reader]`)

	const insert = `INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, event_type, source, payload)
		SELECT gen_random_uuid(), now(), CASE WHEN pg_sequence_last_value('outbox_moves') IS NULL THEN outbox_first_lane('t') END,
			't', 'order', 'e', 's', '' FROM oncebox_settings RETURNING seq`
	require.EqualValues(t, 1, scan[int64](t, appDB, insert))
	exec(t, appDB, "INSERT INTO outbox_tenant (tenant_id) SELECT 't' WHERE NOT EXISTS (SELECT FROM outbox_tenant) ON CONFLICT DO NOTHING")
	exec(t, appDB, `INSERT INTO outbox_dedup (tenant_id, dedup_key, event_id) VALUES ('t', 'k', gen_random_uuid())
		ON CONFLICT (tenant_id, dedup_key) DO UPDATE SET repeats = outbox_dedup.repeats + 1`)
	require.NoError(t, migrations.Up(t.Context(), appDB, nil))
	_, err = appDB.ExecContext(t.Context(), "DELETE FROM outbox")
	require.Equal(t, insufficientPrivilege, pgerr.Code(err), "a service that commits events cannot take them back")

	require.EqualValues(t, 2, scan[int64](t, relayDB, insert))

	const add = "SELECT oncebox_add('order', '{}', 'e', source => 's')::text"
	require.NotEmpty(t, scan[string](t, otherDB, add), "with no right to any table")
	_, err = appDB.ExecContext(t.Context(), add)
	require.Equal(t, insufficientPrivilege, pgerr.Code(err), "until it is granted")
	for _, query := range append(partitionCalls,
		"INSERT INTO outbox_sent SELECT *, now() FROM outbox", "DELETE FROM outbox", "SELECT last_value FROM outbox_seq",
		"INSERT INTO inbox VALUES (gen_random_uuid(), 'c', 't', 's')", "DELETE FROM inbox_default",
		"DELETE FROM outbox_sent_default", "UPDATE outbox_lane SET epoch = epoch + 1",
		"INSERT INTO oncebox_audit (part, actor, action, tenant_id) VALUES ('outbox', 'a', 'replay', 't')",
		"DELETE FROM idempotency_keys",
	) {
		exec(t, relayDB, query)
	}
	for _, table := range scanAll[string](t, opened, `SELECT tablename FROM pg_tables WHERE schemaname = ?
		AND tablename <> 'salaries' AND tablename !~ '_[0-9]{8}$'`, opened.Schema) {
		exec(t, readerDB, "SELECT FROM "+table)
		_, err = readerDB.ExecContext(t.Context(), "DELETE FROM "+table)
		require.Equal(t, insufficientPrivilege, pgerr.Code(err), table)
	}
	exec(t, readerDB, "SELECT FROM outbox_messages")

	// A right that was taken away is missed by itself.
	exec(t, opened, "REVOKE UPDATE ON inbox_key, outbox_lane FROM "+opened.Schema+"_service")
	missing, err := migrations.MissingGrants(t.Context(), relayDB, cfg, migrations.Service)
	require.NoError(t, err)
	require.Equal(t, []string{fmt.Sprintf(`GRANT UPDATE ON "%[1]s"."inbox_key", "%[1]s"."outbox_lane" TO "%[1]s_service"`, opened.Schema)}, missing)
}
