package adopt_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/outbox/adopt"
)

// A guess for each usual shape. What is guessed can be written, read and used.
func TestSuggest(t *testing.T) {
	for name, c := range map[string]struct{ ddl, row, want string }{
		"status": {
			`CREATE TABLE old (id uuid PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload jsonb, headers jsonb,
				status text, created_at timestamptz, processed_at timestamptz, tenant_id text)`,
			`INSERT INTO old VALUES (gen_random_uuid(), 'order', 'a', 'order.placed', '{}', '{}', 'NEW', now()),
				(gen_random_uuid(), 'order', 'a', 'e', '{}', '{}', 'DONE', now())`,
			`id: '{id}'
topic: '{aggregate_type}'
type: '{event_type}'
aggregate_type: '{aggregate_type}'
aggregate_id: '{aggregate_id}'
tenant: '{tenant_id}'
occurred_at: '{created_at}'
payload: '{payload}'
metadata: '{headers}'
order:
  - created_at
  - id
unsent:
  status:
    - NEW
mark:
  processed_at: now()
  status: DONE
`,
		},
		"flag and camel case": {
			`CREATE TABLE old ("eventId" bigserial PRIMARY KEY, "destination" text, "entityType" text, "entityId" text, "messageType" text,
				body text, "isSent" bool)`,
			`INSERT INTO old VALUES (1, 'order', 'order', 'a', 'order.placed', '{}', false)`,
			`id: '{eventId}'
topic: '{destination}'
type: '{messageType}'
aggregate_type: '{entityType}'
aggregate_id: '{entityId}'
payload: '{body}'
order:
  - eventId
unsent:
  isSent:
    - false
    - null
mark:
  isSent: true
`,
		},
		"debezium": {
			`CREATE TABLE old (id uuid PRIMARY KEY, aggregatetype varchar(255), aggregateid varchar(255), type varchar(255), payload jsonb)`,
			`INSERT INTO old VALUES (gen_random_uuid(), 'order', 'a', 'OrderPlaced', '{}')`,
			`id: '{id}'
topic: outbox.event.{aggregatetype}
type: '{type}'
aggregate_type: '{aggregatetype}'
aggregate_id: '{aggregateid}'
payload: '{payload}'
order:
  - id
delete: true
`,
		},
		"numbers for a time": {
			`CREATE TABLE old (id bigint PRIMARY KEY, topic text, key text, payload text, created_at_ms bigint, processed_at timestamptz)`,
			`INSERT INTO old VALUES (1, 'order', 'k', '1', 1795773600123)`,
			`id: '{id}'
topic: '{topic}'
key: '{key}'
occurred_at: '{created_at_ms}'
occurred_at_unit: ms
payload: '{payload}'
order:
  - id
unsent:
  processed_at: null
mark:
  processed_at: now()
`,
		},
		"masstransit in snake case": {
			`CREATE TABLE old (sequence_number bigserial PRIMARY KEY, enqueue_time timestamptz, sent_time timestamptz, headers text, outbox_id uuid,
				message_id uuid, content_type text, message_type text, body text, destination_address text)`,
			`INSERT INTO old VALUES (1, NULL, now(), '{"a":"b"}', gen_random_uuid(), gen_random_uuid(), '', 'urn:message:Shop:OrderChanged', '{"message":{}}')`,
			`id: '{message_id}'
topic: events
type: '{message_type}'
occurred_at: '{sent_time}'
payload: '{body}'
content_type: application/vnd.masstransit+json
metadata: '{headers}'
order:
  - sequence_number
where: '"outbox_id" IS NOT NULL'
delete: true
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, c.ddl)
			f.exec(c.row)
			m, notes, err := adopt.Suggest(t.Context(), f.db.DB, "old")
			require.NoError(t, err)
			var text strings.Builder
			require.NoError(t, m.WriteTo(&text, notes))
			_, yaml, found := strings.Cut(text.String(), "\nid: ")
			require.True(t, found)
			require.Equal(t, c.want, "id: "+yaml)
			require.EqualValues(t, 1, f.once(f.mover(text.String())).Moved)
		})
	}
	f := newFixture(t, `CREATE TABLE old (x int)`)
	m, notes, err := adopt.Suggest(t.Context(), f.db.DB, "old")
	require.NoError(t, err)
	require.Error(t, m.Validate())
	require.Contains(t, strings.Join(notes, "\n"), "payload: no column looks like it.")
}

// A preview says what would be moved where, and moves nothing.
func TestPreview(t *testing.T) {
	f := newFixture(t, orders)
	f.exec(`INSERT INTO old (order_id, payload) VALUES ('a', '1'), ('a', 'bad'), ('a', '3'), ('b', '4')`)
	p, err := f.mover(strings.Replace(mapOrders, "topic: order", `topic: "order.{order_id}"`, 1)).Preview(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, []adopt.TopicCount{{Topic: "order.a", Rows: 1}, {Topic: "order.b", Rows: 1}}, p.Topics)
	require.Len(t, p.First, 1)
	require.Equal(t, "1", string(p.First[0].Payload))
	require.EqualValues(t, 1, p.Unmapped)
	require.EqualValues(t, 1, p.Behind)
	require.Equal(t, "2", p.Problems[0].Row)
	require.Zero(t, f.count("outbox"))
	require.Equal(t, 4, f.count("old WHERE sent_at IS NULL"))
}
