package outboxtest

import (
	"time"

	"github.com/stretchr/testify/require"
)

// Publish stores n published events of 10 aggregates, at intervals of a minute backwards from today's midnight. So the
// order of publication is the reverse of the order of the sequence.
func (f *Fixture) Publish(n int) {
	f.T.Helper()
	f.Exec(`INSERT INTO outbox_sent (seq, id, occurred_at, created_at, not_before, expires_at, aggregate_version, schema_version, lane, retry_count,
		crashes, tenant_id, topic, ordering_key, aggregate_type, aggregate_id, event_type, source, content_type, event_metadata, payload, sent_at)
		SELECT i, gen_random_uuid(), now(), now(), now() - interval '1 day', now() - interval '1 hour', i, 1, i % 64, 0, 0, 't' || i % 2,
			'topic' || i % 3, 'k', 'order', i % 10, 'e' || i % 5, 's', 'text/plain', '{"k":"v"}', i::text::bytea,
			date_trunc('day', now(), 'UTC') - i * interval '1 minute' FROM generate_series(1, ?) i`, n)
}

// PublishedOn stores n published rows of a day long ago, in the partition of that day if there is one.
func (f *Fixture) PublishedOn(day string, n int) {
	f.T.Helper()
	f.Exec(`INSERT INTO outbox_sent (seq, id, occurred_at, created_at, aggregate_version, schema_version, lane, retry_count, crashes, tenant_id,
		topic, aggregate_type, aggregate_id, event_type, source, content_type, event_metadata, payload, sent_at)
		SELECT nextval('outbox_seq'), gen_random_uuid(), now(), now(), 0, 1, 0, 0, 0, 't', 'order', '', '', 'e', 's', 'text/plain', '{}', '',
			?::timestamptz + i * interval '1 ms' FROM generate_series(0, ?) i`, day+" 23:00:00Z", n-1)
}

// Child makes the partitions of a day.
func (f *Fixture) Child(day string) {
	f.T.Helper()
	var made bool
	require.NoError(f.T, f.DB.NewRaw("SELECT outbox_make_partition(?::date)", day).Scan(f.T.Context(), &made))
	require.True(f.T, made)
}

// Portions inserts many rows in short transactions, because relays of other tests wait for the transactions
// of the whole database.
func (f *Fixture) Portions(rows int, insert string) {
	f.T.Helper()
	const portion = 50_000
	for range rows / portion {
		f.Exec(insert, portion)
	}
}

// Today returns today's partition of a table.
func Today(table string) string { return table + "_" + time.Now().UTC().Format("20060102") }
