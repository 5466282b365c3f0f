package oncebox_test

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/internal/await"
)

// eventColumns are the columns of an outbox row that have no default, but the id.
const eventColumns = "occurred_at, lane, tenant_id, topic, event_type, source, payload"

// newDays are the statements that a subscriber has to run every day, before the publisher makes its partitions.
// docs/change-data-capture.md has them too.
const newDays = "SELECT outbox_make_partition(current_date + n), inbox_make_partition(current_date + n) FROM generate_series(%d, %d) n"

// days drops the days that are over.
func (r *replicas) days(app *oncebox.App) {
	r.t.Helper()
	ctx, blue := r.t.Context(), r.blue.DB
	r.exec(blue, fmt.Sprintf(newDays, -30, 7))
	r.refresh()
	r.exec(blue, "UPDATE inbox SET processed_at = processed_at - interval '20 days'")
	r.exec(blue, `INSERT INTO inbox SELECT inbox_day_bound(current_date - n), consumer, tenant_id, source, processed_at
		FROM inbox, generate_series(12, 14) n ON CONFLICT DO NOTHING`)
	for _, aged := range []string{
		"outbox SET created_at = created_at - interval '20 days' WHERE created_at < clock_timestamp()",
		"outbox_sent SET sent_at = sent_at - interval '20 days'",
		"outbox_progress SET at = at - interval '20 days'", "inbox_consumer SET active_at = active_at - interval '20 days'",
		"outbox_dedup SET created_at = created_at - interval '20 days'",
		"oncebox_audit SET at = at - interval '2 years' WHERE id % 2 = 0",
	} {
		r.exec(blue, "UPDATE "+aged)
	}
	r.requireEqual("all is 20 days older")
	require.NoError(r.t, app.Outbox.Clean(ctx))
	require.NoError(r.t, app.Inbox.Clean(ctx))
	r.drop()
	r.requireEqual("old days were dropped")
}

// drop drops the days at the subscribers that the publisher has dropped.
func (r *replicas) drop() {
	r.t.Helper()
	const days = "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND relname ~ '_[0-9]{8}$'"
	left, now := []string{}, ""
	require.NoError(r.t, r.blue.NewRaw(days).Scan(r.t.Context(), &left))
	require.NoError(r.t, r.blue.NewRaw("SELECT pg_current_wal_lsn()::text").Scan(r.t.Context(), &now))
	for name, db := range r.green {
		await.True(r.t, func() bool {
			return r.number(r.blue.DB, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = '"+name+"' AND confirmed_flush_lsn >= '"+now+"'") == 1
		}, "%s has all that was before", name)
		var had []string
		require.NoError(r.t, db.NewRaw(days).Scan(r.t.Context(), &had))
		gone := slices.DeleteFunc(had, func(day string) bool { return slices.Contains(left, day) })
		require.Greater(r.t, len(gone), 20)
		for _, day := range gone {
			r.exec(db, "DROP TABLE "+day)
		}
	}
}

// everyTable changes each row of each table.
func (r *replicas) everyTable() {
	r.t.Helper()
	const message = "SELECT 'c', 1, gen_random_uuid(), 't', 's', 'm', 'e', 'order', 'text/plain'"
	for _, row := range []string{ // most tables have no such row when a service has stopped
		"oncebox_lease VALUES ('test', 'c', 1, gen_random_uuid(), now())",
		"oncebox_history (part, at) VALUES ('outbox', now()) ON CONFLICT DO NOTHING",
		"oncebox_process (process, name, host, service, version, library, parts, relay, broker, seen_until) " +
			"VALUES (gen_random_uuid(), 'n', 'h', 's', '', '', 'relay', 'me', '', now())",
		"outbox (id, " + eventColumns + ") SELECT gen_random_uuid(), now(), 1, 't', 'order', 'e', 's', '' FROM generate_series(1, 20)",
		"outbox_held SELECT o.*, now(), 'e' FROM outbox o",
		"outbox_dead SELECT o.*, now(), 'e' FROM outbox o",
		"outbox_sent SELECT o.*, now() FROM outbox o",
		"outbox_dedup VALUES ('t', 'k', gen_random_uuid())",
		"outbox_adopted (old_table, mapping) VALUES ('public.old', '')",
		"outbox_projector VALUES ('me', 0, '', now())",
		"outbox_block VALUES (0, 'k', 1, 'dead')",
		"inbox_consumer (consumer) VALUES ('c')", // the cleaning may have removed all of them
		"inbox_topic VALUES ('order', 'c', true)",
		"inbox_pause VALUES ('c', now(), 'ann', 'smtp is down', now())",
		"inbox_process (consumer, topic, process, name, state, since, unsettled, seen_until) " +
			"VALUES ('c', 'order', gen_random_uuid(), 'n', 'AWAY', now(), 0, now())",
		"inbox_attempt VALUES (gen_random_uuid(), 'c', 't', 's', 1)",
		"inbox_step VALUES (gen_random_uuid(), 'c', 't', 's', 'pay', '{\"a\": 1}')",
		"inbox_key (consumer, key_lock, tenant_id, state, due_at) VALUES ('c', 1, 't', 'WAITING', now())",
		"inbox_parked (consumer, key_lock, message_key, tenant_id, source, message_id, event_type, topic, content_type, payload) " +
			message + ", '' FROM generate_series(1, 20)",
		"inbox_dead (consumer, key_lock, message_key, tenant_id, source, message_id, event_type, topic, content_type, payload, seq, error_message) " + message +
			", '', n, 'e' FROM generate_series(1, 20) n",
		"oncebox_failure (fingerprint) SELECT 'f' || n FROM generate_series(1, 20) n",
	} {
		r.exec(r.blue.DB, "INSERT INTO "+row)
	}
	var empty []string
	for _, table := range r.tables() {
		var column string
		require.NoError(r.t, r.blue.NewRaw(`SELECT attname FROM pg_attribute WHERE attrelid = ?::regclass AND attnum > 0
			AND attgenerated = '' AND attidentity = ''
			AND NOT attisdropped ORDER BY attnum DESC LIMIT 1`, table).Scan(r.t.Context(), &column))
		if r.number(r.blue.DB, "SELECT count(*) FROM "+table) == 0 {
			empty = append(empty, table)
		}
		r.exec(r.blue.DB, fmt.Sprintf("UPDATE %s SET %s = %[2]s", table, column))
	}
	require.Empty(r.t, empty)
	r.requireEqual("each row was changed")
}

// midnight is when a subscriber to the single days has not made the next one, and what is to be done then. The other subscriber goes on.
func (r *replicas) midnight() {
	r.t.Helper()
	r.exec(r.blue.DB, fmt.Sprintf(newDays, 8, 8))
	r.exec(r.blue.DB, "INSERT INTO inbox (message_key, consumer, tenant_id, source) SELECT inbox_day_bound(current_date + 8), 'c', 't', 's'")
	await.True(r.t, func() bool { return r.errors("by_leaf") > 0 }, "relation inbox_... does not exist")
	r.exec(r.green["by_leaf"], fmt.Sprintf(newDays, 8, 8))
	r.exec(r.green["by_leaf"], "ALTER SUBSCRIPTION by_leaf REFRESH PUBLICATION")
	await.True(r.t, func() bool { return r.syncing() == 0 }, "the new day was copied")
	r.exec(r.green["by_leaf"], "SELECT pg_stat_reset_subscription_stats(oid) FROM pg_subscription WHERE subname = 'by_leaf'")
	await.True(r.t, func() bool { return r.errors("by_leaf") == 0 }, "the errors are forgotten")
	r.requireEqual("the next day was made late")
}

// late makes days whose rows lie in the DEFAULT children already. A subscriber to the single days does not bear that: its DEFAULT children refuse rows of
// days that it has.
func (r *replicas) late() {
	r.t.Helper()
	r.exec(r.green["by_leaf"], "DROP SUBSCRIPTION by_leaf")
	delete(r.green, "by_leaf")
	r.exec(r.blue.DB, `INSERT INTO outbox (id, created_at, `+eventColumns+`)
		SELECT gen_random_uuid(), clock_timestamp() + n * interval '1 day', `+eventColumns+` FROM (SELECT * FROM outbox LIMIT 1) o, generate_series(10, 12) n`)
	r.exec(r.blue.DB, `INSERT INTO inbox (message_key, consumer, tenant_id, source)
		SELECT inbox_day_bound(current_date + n), 'c', 't', 's' FROM generate_series(10, 12) n`)
	const waiting = "SELECT (SELECT count(*) FROM outbox_default) + (SELECT count(*) FROM inbox_default)"
	require.Equal(r.t, 6, r.number(r.blue.DB, waiting))
	r.requireEqual("rows lie in the DEFAULT children")
	r.exec(r.blue.DB, fmt.Sprintf(newDays, 10, 12))
	require.Zero(r.t, r.number(r.blue.DB, waiting))
	r.requireEqual("they were moved to their days")
}

// takeOver sets the sequences of the subscriber, which are not replicated, with what this query of the page says at the publisher.
func (r *replicas) takeOver() {
	r.t.Helper()
	page, err := os.ReadFile("docs/change-data-capture.md")
	require.NoError(r.t, err)
	_, query, found := strings.Cut(string(page), "-- at the publisher\n")
	require.True(r.t, found)
	query, _, _ = strings.Cut(query, ";")
	require.Contains(r.t, query, "'oncebox'")
	query = strings.ReplaceAll(query, "'oncebox'", "'"+r.blue.Schema+"'")
	var typed []string
	require.NoError(r.t, r.blue.NewRaw(query).Scan(r.t.Context(), &typed))
	const numbers = `SELECT string_agg(sequencename || ' ' || coalesce(last_value::text, 'unused'), ', ' ORDER BY sequencename)
		FROM pg_sequences WHERE schemaname = current_schema()`
	var want, got string
	require.NoError(r.t, r.blue.NewRaw(numbers).Scan(r.t.Context(), &want))
	for _, statement := range typed {
		r.exec(r.green["by_root"], statement)
	}
	require.NoError(r.t, r.green["by_root"].NewRaw(numbers).Scan(r.t.Context(), &got))
	require.Equal(r.t, want, got)
}
