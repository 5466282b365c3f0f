package adopt_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/outbox/adopt"
)

// The mappings of the shapes that tables usually have, each with a row and the event that it becomes.
func TestShapes(t *testing.T) {
	const fields = "topic, event_type, aggregate_type, aggregate_id, aggregate_version, ordering_key, tenant_id, source, content_type, event_metadata, " +
		"convert_from(payload, 'UTF8')"
	for name, c := range map[string]struct {
		ddl, row, mapping, want string
		id                      string // of the event; "": computed
		left                    string // the row afterwards; "": it is deleted
	}{
		"status, snake case, jsonb": {
			ddl: `CREATE TABLE old (id uuid PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload jsonb, headers jsonb,
				status text DEFAULT 'pending', created_at timestamp, processed_at timestamptz)`,
			row: `INSERT INTO old VALUES ('0193b2c4-0000-7000-8000-000000000001', 'order', 'o-1', 'order.placed', '{"total":42}',
				'{"trace":"t-1","try":3,"none":null,"more":{"a":1}}', DEFAULT, '2026-11-27 10:00')`,
			mapping: `{table: old, id: "{id}", topic: "shop.{aggregate_type}", type: "{event_type}", aggregate_type: "{aggregate_type}",
				aggregate_id: "{aggregate_id}", payload: "{payload}", metadata: "{headers}", occurred_at: "{created_at}", order: [created_at, id],
				unsent: {status: [pending, failed]}, mark: {status: sent, processed_at: now()}}`,
			id: "0193b2c4-0000-7000-8000-000000000001",
			want: `shop.order order.placed order o-1 0 default|order|o-1 default shop application/json ` +
				`{"more":"{\"a\": 1}","trace":"t-1","try":"3"} {"total": 42}`,
			left: "sent",
		},
		"flag, camel case, json": {
			ddl: `CREATE TABLE old ("messageId" varchar(36) PRIMARY KEY, "entityId" int, "entityVersion" int, "messageType" text, "eventData" json,
				published boolean, "order.nr" bigserial)`,
			row: `INSERT INTO old VALUES ('m-1', 7, 3, 'OrderPlaced', '{"total":  42}', NULL)`,
			mapping: `{table: old, id: "{messageId}", topic: order, type: "{messageType}", aggregate_type: order, aggregate_id: "{entityId}",
				aggregate_version: "{entityVersion}", payload: "{eventData}", headers: {nr: '{"order.nr"}', service: old}, order: [order.nr],
				unsent: {published: [false, null]}, mark: {published: true}}`,
			want: `order OrderPlaced order 7 3 default|order|7 default shop application/json {"nr":"1","service":"old"} {"total":  42}`,
			left: "true",
		},
		"bytes in base64 within text, a key, a tenant": {
			ddl: `CREATE TABLE old (id bigint PRIMARY KEY, body text)`,
			row: `INSERT INTO old VALUES (1, '{"to":"mail","by":"crm","for":"acme","key":"k|1","data":"AP8="}')`,
			mapping: `{table: old, id: "{id}", topic: "{body.to}", source: "{body.by}", tenant: "{body.for}", key: "{body.key}", payload: "{body.data}",
				base64: true, order: [id], delete: true}`,
			want: `mail mail   0 acme|k\|1 acme crm application/octet-stream {} `,
		},
		"bytea": {
			ddl: `CREATE TABLE old (id bigint PRIMARY KEY, topic bytea, payload bytea, metadata bytea)`,
			row: `INSERT INTO old VALUES (1, 'mail', '\x68c3a9', '{"a":"b"}')`,
			mapping: `{table: old, id: "{id}", topic: "{topic}", payload: "{payload}", metadata: "{metadata}",
				content_type: text/plain, order: [id], delete: true}`,
			want: `mail mail   0 default shop text/plain {"a":"b"} hé`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, c.ddl)
			f.exec(c.row)
			m := f.mover(c.mapping)
			require.Equal(t, adopt.Summary{Moved: 1}, f.once(m))
			columns := fields
			if strings.Contains(name, "base64") {
				columns = strings.Replace(fields, "convert_from(payload, 'UTF8')", "CASE payload WHEN '\\x00ff' THEN '' END", 1)
			}
			require.Equal(t, []string{c.want}, f.events(columns))
			require.Equal(t, c.id == "", f.events("substring(id::text, 15, 1)")[0] == "8", "UUIDv8, RFC 9562")
			if c.id != "" {
				require.Equal(t, []string{c.id}, f.events("id"))
			}
			var left []string
			require.NoError(t, f.db.NewRaw("SELECT coalesce(to_jsonb(o)->>'status', to_jsonb(o)->>'published') FROM old o").Scan(t.Context(), &left))
			require.Equal(t, strings.Fields(c.left), append([]string{}, left...))
			require.Equal(t, adopt.Summary{Moved: 1}, f.once(m), "it is moved once")
		})
	}
}

// The id of a row that has no UUID is the same each time, and differs from table to table.
func TestComputedIDs(t *testing.T) {
	f := newFixture(t, orders)
	f.exec(`CREATE TABLE other (LIKE old INCLUDING ALL)`)
	f.exec(`INSERT INTO old (order_id, payload) VALUES ('a', '1'), ('a', '2')`)
	f.exec(`INSERT INTO other (id, order_id, payload) VALUES (1, 'a', '1')`)
	f.once(f.mover(mapOrders))
	f.exec(`UPDATE old SET sent_at = NULL`)
	f.once(f.mover(mapOrders))
	f.once(f.mover(strings.Replace(mapOrders, "old", "other", 1)))
	ids := f.events("id")
	require.Len(t, ids, 5)
	require.Equal(t, ids[:2], ids[2:4])
	require.NotEqual(t, ids[0], ids[1])
	require.NotContains(t, ids[:4], ids[4])
}

// Each mistake in a mapping is refused with a text that says what to do.
func TestMistakesInMappings(t *testing.T) {
	f := newFixture(t, `CREATE TABLE old (id bigint PRIMARY KEY, payload jsonb, at date, total int GENERATED ALWAYS AS (id + 1) STORED,
		status text, done bool)`)
	f.exec(`CREATE TABLE "OldOutbox" (id int)`)
	with := func(change string) string {
		base := map[string]string{
			"table": "old", "id": `"{id}"`, "topic": "t", "payload": `"{payload}"`, "order": "[id]", "unsent": "{status: new}", "mark": "{status: sent}",
		}
		var extra strings.Builder
		for line := range strings.SplitSeq(change, "; ") {
			name, value, _ := strings.Cut(line, "=")
			if _, known := base[name]; known {
				base[name] = value
			} else {
				extra.WriteString(name + ": " + value + "\n")
			}
		}
		for name, value := range base {
			if value != "" {
				extra.WriteString(name + ": " + value + "\n")
			}
		}
		return extra.String()
	}
	for change, want := range map[string]string{
		"table=":                                 `table: is missing`,
		"table=a.b.c":                            `more than a schema and a name`,
		"table=nothing":                          `there is no table nothing: name it with its schema`,
		"table=old_outbox":                       `"OldOutbox"`,
		"table=outbox":                           `is oncebox's own outbox`,
		"id=":                                    `id: is missing: give a column, such as "{id}"`,
		`id="{id"`:                               `id: a "{" has no "}"`,
		`id="id}"`:                               `id: a "}" has no "{"`,
		`id="{}"`:                                `id: a name of a column or table is empty`,
		`id='{"id}'`:                             `id: a name in double quotes does not end`,
		`id='{"id"x}'`:                           `put a name with such characters in double quotes`,
		`id={id}`:                                `put texts with braces in quotes`,
		`topic="{topic}"`:                        `topic: the table ` + f.db.Schema + `.old has no column "topic"; it has id, payload, at, total, status, done`,
		`topic="{id.a}"`:                         `topic: the column "id" is of type int8, which has no parts`,
		`payload="x{payload}"`:                   `payload: "x{payload}" is not one column`,
		`payload="{id}"`:                         `payload: the column "id" is of type int8: give one of type json, jsonb, text or bytea`,
		`occurred_at="{at}"`:                     `occurred_at: {at} is of type date: give a column of type timestamptz or timestamp`,
		`aggregate_id="{id}"`:                    `an aggregate needs aggregate_type and aggregate_id`,
		"order=":                                 `order: is missing`,
		`order=["{id}"]`:                         `write it without braces`,
		"order=[nr]":                             `order: the table`,
		"unsent=":                                `unsent: is missing`,
		"unsent={status: {a: b}}":                `unsent.status: map[a:b] is not a value`,
		"unsent={state: new}":                    `has no column "state"`,
		"mark=":                                  `say what becomes of rows that were moved`,
		"delete=true":                            `a row that is deleted cannot be marked`,
		"mark={status: [a, b]}":                  `mark.status: [a b] is not one value`,
		"mark={total: 3}":                        `mark: the column "total" is generated`,
		"mark={id: null}":                        `mark: the column "id" is NOT NULL`,
		`occurred_at="{id}"`:                     `occurred_at: {id} is a number: say in occurred_at_unit what it counts since 1970`,
		`occurred_at="{id}"; occurred_at_unit=h`: `occurred_at_unit: "h" is not known: give s, ms, us or ns`,
		"mark={status: now()}":                   `mark: the column "status" is of type text, and now() is for timestamptz and timestamp`,
		"colour=red":                             `field colour not found`,
		"where=|\n  status = 'x'\n---\n":         `second document`,
	} {
		m, err := adopt.Read(strings.NewReader(with(change)))
		if err == nil {
			_, err = adopt.New(t.Context(), f.store, m, nil)
		}
		require.ErrorContains(t, err, want, change)
		require.ErrorContains(t, err, "adopt: ", change)
	}
	_, err := adopt.Read(strings.NewReader(""))
	require.EqualError(t, err, "adopt: read the mapping: it is empty")
}

// What is wrong with values of a mapping is known by the server: a constant that does not fit its column.
func TestConstantsThatDoNotFit(t *testing.T) {
	f := newFixture(t, orders)
	m := f.mover(strings.Replace(mapOrders, "{sent_at: null}", "{id: many}", 1))
	_, err := m.Once(t.Context())
	require.ErrorContains(t, err, `invalid input syntax for type bigint: "many"`)
}

// The server's error alone does not say which line of the mapping it is about.
func TestMistakeInWhere(t *testing.T) {
	f := newFixture(t, orders)
	for where, wanted := range map[string]string{
		"order_id = 'a' OR": "syntax error", "no_such_column > 1": "no_such_column", "order_id": "must be type boolean", "order_id = 'a' -- a comment": "",
	} {
		m := f.mapping(mapOrders)
		m.Where = where
		_, err := adopt.New(t.Context(), f.store, m, nil)
		if wanted == "" {
			require.NoError(t, err, "the line may end with a comment")
			continue
		}
		require.ErrorContains(t, err, `try the condition "where" of the mapping, `+where)
		require.ErrorContains(t, err, wanted)
	}
}
