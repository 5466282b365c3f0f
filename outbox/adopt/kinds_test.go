package adopt_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/outbox/adopt"
)

// What columns may be: keys, times, headers and payloads of all kinds. The preview, a mover and the trigger agree on each of them.
func TestKindsOfColumns(t *testing.T) {
	const all = "concat_ws(' ', aggregate_id, to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), event_metadata, encode(payload, 'escape'))"
	for name, c := range map[string]struct{ ddl, row, mapping, want string }{
		"composite key, mixed case, generated": {
			`CREATE TABLE old ("Tenant" text, "Nr" int, "OrderID" text, "Body" json, "Upper" text GENERATED ALWAYS AS (upper("OrderID")) STORED,
				"SentAt" timestamp, PRIMARY KEY ("Tenant", "Nr"))`,
			`INSERT INTO old VALUES ('t', 1, 'o-1', '{"n":  1}')`,
			`{table: old, id: "{Tenant}-{Nr}", topic: order, aggregate_type: order, aggregate_id: "{Upper}", payload: "{Body}", occurred_at: "{Body.at}",
				order: [Nr], unsent: {SentAt: null}, mark: {SentAt: now()}}`,
			`O-1 now {} {"n":  1}`,
		},
		"text key, seconds": {
			`CREATE TABLE old (id text PRIMARY KEY, at int, payload text, done bool DEFAULT false)`,
			`INSERT INTO old VALUES ('a', 1606471200, '1')`,
			`{table: old, id: "{id}", topic: order, key: k, payload: "{payload}", occurred_at: "{at}", occurred_at_unit: s, order: [at], unsent: {done: false},
				mark: {done: true}}`,
			"2020-11-27 10:00:00.000000 {} 1",
		},
		"seconds with a fraction": {
			`CREATE TABLE old (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), at double precision, payload text)`,
			`INSERT INTO old (at, payload) VALUES (1606471200.25, '1')`,
			`{table: old, id: "{id}", topic: order, payload: "{payload}", occurred_at: "{at}", occurred_at_unit: s, order: [at], delete: true}`,
			"2020-11-27 10:00:00.250000 {} 1",
		},
		"milliseconds": {
			`CREATE TABLE old (id bigint PRIMARY KEY, at bigint, payload text)`, `INSERT INTO old VALUES (1, 1606471200123, '1')`,
			`{table: old, id: "{id}", topic: order, payload: "{payload}", occurred_at: "{at}", occurred_at_unit: ms, order: [at], delete: true}`,
			"2020-11-27 10:00:00.123000 {} 1",
		},
		"microseconds": {
			`CREATE TABLE old (id bigint PRIMARY KEY, at numeric, payload text)`, `INSERT INTO old VALUES (1, 1606471200123456, '1')`,
			`{table: old, id: "{id}", topic: order, payload: "{payload}", occurred_at: "{at}", occurred_at_unit: us, order: [at], delete: true}`,
			"2020-11-27 10:00:00.123456 {} 1",
		},
		"nanoseconds within JSON": {
			`CREATE TABLE old (id bigint PRIMARY KEY, payload jsonb)`, `INSERT INTO old VALUES (1, '{"at": 1606471200123456789}')`,
			`{table: old, id: "{id}", topic: order, payload: "{payload}", occurred_at: "{payload.at}", occurred_at_unit: ns, order: [id], delete: true}`,
			`2020-11-27 10:00:00.123456 {} {"at": 1606471200123456789}`,
		},
		"a text with a time": {
			`CREATE TABLE old (id bigint PRIMARY KEY, payload text, at varchar(40))`, `INSERT INTO old VALUES (1, '1', '2020-11-27T12:00:00.5+02:00')`,
			`{table: old, id: "{id}", topic: order, payload: "{payload}", occurred_at: "{at}", order: [id], delete: true}`,
			"2020-11-27 10:00:00.500000 {} 1",
		},
		"a text without a zone": {
			`CREATE TABLE old (id bigint PRIMARY KEY, payload text, at text)`, `INSERT INTO old VALUES (1, '1', '2020-11-27 10:00')`,
			`{table: old, id: "{id}", topic: order, payload: "{payload}", occurred_at: "{at}", order: [id], delete: true}`,
			"2020-11-27 10:00:00.000000 {} 1",
		},
		"no time": {
			`CREATE TABLE old (id bigint PRIMARY KEY, payload text, at text)`, `INSERT INTO old VALUES (1, '1', 'yesterday, about ten')`,
			`{table: old, id: "{id}", topic: order, payload: "{payload}", occurred_at: "{at}", order: [id], delete: true}`, "now {} 1",
		},
		"headers are pairs": {
			`CREATE TABLE old (id bigint PRIMARY KEY, headers jsonb)`, `INSERT INTO old VALUES (1, '[["k", "v"], ["n", 1], ["z", null]]')`,
			`{table: old, id: "{id}", topic: order, payload: "{headers}", metadata: "{headers}", order: [id], delete: true}`,
			`now {"k":"v","n":"1"} [["k", "v"], ["n", 1], ["z", null]]`,
		},
		"headers are a list of objects": {
			`CREATE TABLE old (id bigint PRIMARY KEY, headers text)`, `INSERT INTO old VALUES (1, '[{"key":"k","value":"v"},{"Name":"n","Value":{"a":1}}]')`,
			`{table: old, id: "{id}", topic: order, payload: "{headers}", metadata: "{headers}", order: [id], delete: true}`,
			`now {"k":"v","n":"{\"a\":1}"} [{"key":"k","value":"v"},{"Name":"n","Value":{"a":1}}]`,
		},
		"headers are the text of an hstore": {
			`CREATE TABLE old (id bigint PRIMARY KEY, headers text)`, `INSERT INTO old VALUES (1, '"k"=>"a \"b\\ c", "n"=>NULL, "e"=>""')`,
			`{table: old, id: "{id}", topic: order, payload: "{headers}", content_type: text/plain, metadata: "{headers}", order: [id], delete: true}`,
			`now {"e":"","k":"a \"b\\ c"} "k"=>"a \\"b\\\\ c", "n"=>NULL, "e"=>""`,
		},
		"no headers": {
			`CREATE TABLE old (id bigint PRIMARY KEY, headers text, more json)`, `INSERT INTO old VALUES (1, '', 'null')`,
			`{table: old, id: "{id}", topic: order, payload: "{more}", metadata: "{headers}", order: [id], delete: true}`, `now {} null`,
		},
		"bytes that are no UTF-8": {
			`CREATE TABLE old (id bigint PRIMARY KEY, payload bytea)`, `INSERT INTO old VALUES (1, '\xff00fe')`,
			`{table: old, id: "{id}", topic: order, payload: "{payload}", order: [id], delete: true}`, `now {} \377\000\376`,
		},
		"json with a NUL": {
			`CREATE TABLE old (id bigint PRIMARY KEY, payload json)`, `INSERT INTO old VALUES (1, '{"n": "\u0000"}')`,
			`{table: old, id: "{id}", topic: order, aggregate_type: order, aggregate_id: "{id}", payload: "{payload}", order: [id], delete: true}`,
			`1 now {} {"n": "\\u0000"}`,
		},
		"a part of a list": {
			`CREATE TABLE old (id text PRIMARY KEY, ops jsonb, sent bool DEFAULT false)`,
			`INSERT INTO old VALUES ('m', '[{"MessageId": "m-1", "Headers": {"k": "v"}, "Body": "eyJuIjoxfQ=="}]')`,
			`{table: old, id: "{ops.0.MessageId}", topic: order, payload: "{ops.0.Body}", base64: true, content_type: application/json,
				metadata: "{ops.0.Headers}", order: [id], unsent: {sent: false}, mark: {sent: true}}`,
			`now {"k":"v"} {"n":1}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, c.ddl)
			m := f.mover(c.mapping)
			now := func() []string {
				list := f.events("CASE WHEN occurred_at > now() - interval '1 hour' THEN replace(" + all +
					", to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), 'now') ELSE " + all + " END")
				require.Len(t, list, 1)
				return []string{strings.TrimSpace(list[0])}
			}
			f.exec(c.row)
			p, err := m.Preview(t.Context(), 1)
			require.NoError(t, err)
			require.NoError(t, p.Fault)
			require.Empty(t, p.Problems)
			require.Zero(t, f.count("outbox"), "a preview leaves nothing behind")
			require.Equal(t, adopt.Summary{Moved: 1}, f.once(m))
			require.Equal(t, []string{c.want}, now(), "the mover")
			f.exec("TRUNCATE old, outbox")
			require.NoError(t, m.Forward(t.Context()))
			f.exec(c.row)
			require.Equal(t, []string{c.want}, now(), "the trigger")
			require.Zero(t, f.once(m).Left)
		})
	}
}

// An hstore is a header as well, whatever schema its extension is in.
func TestHstore(t *testing.T) {
	f := newFixture(t, `SELECT 1`)
	f.exec(`CREATE EXTENSION IF NOT EXISTS hstore SCHEMA public`)
	f.exec(`CREATE TABLE old (id bigint PRIMARY KEY, headers public.hstore)`)
	f.exec(`INSERT INTO old VALUES (1, '"k"=>"v", "o"=>"a", "n"=>NULL')`)
	m := f.mover(`{table: old, id: "{id}", topic: order, key: "{headers.o}", payload: "{headers}", metadata: "{headers}", order: [id], delete: true}`)
	require.Equal(t, adopt.Summary{Moved: 1}, f.once(m))
	want := []string{`{"k":"v","o":"a"} default|a`}
	require.Equal(t, want, f.events("event_metadata, ordering_key"))
	f.exec(`TRUNCATE outbox`)
	require.NoError(t, m.Forward(t.Context()))
	f.exec(`INSERT INTO old VALUES (1, '"k"=>"v", "o"=>"a", "n"=>NULL')`)
	require.Equal(t, want, f.events("event_metadata, ordering_key"))
}

// A unit that is wrong gives times that no event can have, or is seen in the preview. Nothing is moved.
func TestTimesOfTheWrongUnit(t *testing.T) {
	f := newFixture(t, `CREATE TABLE old (id bigint PRIMARY KEY, at bigint, payload text)`)
	f.exec(`INSERT INTO old VALUES (1, 1606471200123, '1')`)
	m := f.mover(`{table: old, id: "{id}", topic: order, payload: "{payload}", occurred_at: "{at}", occurred_at_unit: s, order: [at], delete: true}`)
	p, err := m.Preview(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, p.Problems, 1)
	require.Contains(t, p.Problems[0].Reason, "OccurredAt is in the year 52877")
	require.Equal(t, p.Problems[0].Reason, f.once(m).Problems[0].Reason, "the run says what the preview says")
}
