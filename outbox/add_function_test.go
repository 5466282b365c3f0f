package outbox_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/outboxtest"
	"github.com/oncebox/oncebox/internal/pgerr"
)

// addBy adds an event of the aggregate "order" with the function of the database. args are further parameters by name.
func (f *fixture) addBy(tx bun.IDB, key, name, args string) (id string, err error) {
	err = tx.NewRaw("SELECT oncebox_add('order', '{\"n\": 1}', ?, 'order', ?, source => 'elsewhere'"+args+")", name, key).Scan(f.T.Context(), &id)
	return id, err
}

// Keys with escaped characters, beyond ASCII, and of all lengths.
func TestFunctionHashesAsGo(t *testing.T) {
	f := newFixture(t, nil)
	for i := range 200 {
		key := fmt.Sprintf("%s|ä€𝄞\\|%d", strings.Repeat("k", i), i)
		var high, low uint64
		require.NoError(t, f.DB.NewRaw("SELECT high, low FROM outbox_hash(?)", key).Scan(t.Context(), &high, &low))
		require.Equal(t, outboxdb.LaneHash(key), high<<32|low, key)
	}
}

// The function stores the same as Add, column by column.
func TestFunctionStoresAsAdd(t *testing.T) {
	f := newFixture(t, nil)
	at := testTime.Add(time.Hour)
	const args = `, tenant_id => 'a|c\me', metadata => '{"k": "v"}', aggregate_version => 7, routing_key => 'route', not_before => ?0,
		expires_at => ?0, max_attempts => 9, source => 'test', schema_id => 'schema-7', schema_version => 3, occurred_at => ?0`
	for name, both := range map[string]struct {
		sql  string
		opts []event.AddOption
	}{
		"few": {"'order', '{\"n\": 1}', 'e', source => 'test'", []event.AddOption{event.WithType("e")}},
		"aggregate": {"'order', '{\"n\": 1}', 'e', 'order', 'x|y'" + args, []event.AddOption{
			event.WithType("e"), event.WithTenantID(`a|c\me`), event.WithHeader("k", "v"), event.WithAggregate("order", "x|y", 7),
			event.WithRoutingKey("route"), event.WithNotBefore(at), event.WithExpiry(at), event.WithMaxAttempts(9), event.WithSchema("schema-7", 3),
		}},
		"reminder": {"'order', '{\"n\": 1}', 'e', 'order', 'x', source => 'test', not_before => ?0", []event.AddOption{
			event.WithType("e"), event.WithAggregate("order", "x", 0), event.WithNotBefore(at),
		}},
		"key": {`'order', '{"n": 1}', '', ordering_key => 'x|y', source => 'test', dedup_key => 'd'`, []event.AddOption{
			event.WithOrderingKey("x|y"), event.WithDedupKey("d-go"),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var stored [2]string
			for i := range stored {
				var id string
				f.Commit(func(tx bun.Tx) {
					var err error
					if i == 0 {
						err = tx.NewRaw("SELECT oncebox_add("+both.sql+")", at).Scan(t.Context(), &id)
					} else {
						id, err = f.Add(t.Context(), tx, "order", []byte(`{"n": 1}`), append(both.opts, event.WithContentType("application/json"))...)
					}
					require.NoError(t, err)
				})
				// Unordered events have lanes of their own, and two events can neither have one id nor one dedup key.
				require.NoError(t, f.DB.NewRaw(`SELECT (to_jsonb(o) - 'seq' - 'id' - 'created_at' - 'occurred_at' - 'dedup_key' || CASE
					WHEN ordering_key IS NULL THEN '{"lane": 0}' ELSE '{}' END::jsonb || CASE
					WHEN routing_key = id::text THEN '{"routing_key": "its id"}' ELSE '{}' END::jsonb)::text FROM outbox o WHERE id = ?`, id).
					Scan(t.Context(), &stored[i]))
			}
			require.JSONEq(t, stored[1], stored[0])
		})
	}
	require.Equal(t, 2, f.Count("outbox_tenant"))
	require.Zero(t, f.Count(`outbox WHERE substring(id::text, 15, 1) <> '7' OR substring(id::text, 20, 1) !~ '[89ab]'`), "UUIDv7, RFC 9562")
}

// Bytes are stored as they are, with their media type. JSON has to be valid, and keeps its blanks.
func TestFunctionTakesBytes(t *testing.T) {
	f := newFixture(t, nil)
	for args, want := range map[string]string{
		`payload_bytes => '\x00ff', content_type => 'application/x-protobuf'`: "application/x-protobuf 00ff",
		`payload_bytes => '{"n":  1, "n": "\\u0000"}'`: "application/json " +
			hex.EncodeToString([]byte(`{"n":  1, "n": "\u0000"}`)),
		`payload_bytes => 'null', content_type => 'application/cloudevents+json; v=1'`: "application/cloudevents+json; v=1 6e756c6c",
		`payload_bytes => 'no json', content_type => 'text/json'`:                      "text/json 6e6f206a736f6e",
	} {
		var id, stored string
		require.NoError(t, f.DB.NewRaw("SELECT oncebox_add('order', NULL, 'e', source => 's', "+args+")").Scan(t.Context(), &id))
		require.NoError(t, f.DB.NewRaw("SELECT content_type || ' ' || encode(payload, 'hex') FROM outbox WHERE id = ?", id).Scan(t.Context(), &stored))
		require.Equal(t, want, stored)
	}
}

// One key has one order, in whatever language it is written: the events leave in the order of the commits.
func TestFunctionAndGoWriteOneKeyInOrder(t *testing.T) {
	f := newFixture(t, nil)
	var want []string
	for i := range 10 {
		f.Commit(func(tx bun.Tx) {
			name := fmt.Sprint("e", i)
			want = append(want, name)
			var err error
			if i%2 == 0 {
				_, err = f.addBy(tx, "hot", name, "")
			} else {
				_, err = f.Add(t.Context(), tx, "order", []byte("x"), event.WithAggregate("order", "hot", 1), event.WithType(name))
			}
			require.NoError(t, err)
			require.Equal(t, []int64{int64(outboxdb.LaneHash("default|order|hot") >> 32 % outboxdb.LockBuckets)}, f.lockedBuckets(),
				"others of the key wait for COMMIT")
		})
	}
	var got []string
	for _, row := range f.Fetch() {
		require.Equal(t, "default|order|hot", row.Key)
		got = append(got, row.Type)
	}
	require.Equal(t, want, got)
}

func TestFunctionTakesPartInTheTransaction(t *testing.T) {
	f := newFixture(t, nil)
	require.ErrorIs(t, f.DB.RunInTx(t.Context(), nil, func(_ context.Context, tx bun.Tx) error {
		_, err := f.addBy(tx, "a", "undone", ", dedup_key => 'k'")
		require.NoError(t, err)
		return errUndone
	}), errUndone)
	first, err := f.addBy(f.DB, "a", "kept", ", dedup_key => 'k'")
	require.NoError(t, err)
	again, err := f.addBy(f.DB, "a", "repeated", ", dedup_key => 'k'")
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Equal(t, first, f.addOnce("repeated in Go", "k"))
	require.Equal(t, map[string]string{"kept": "NEW/0"}, f.Statuses())
}

func TestFunctionInATrigger(t *testing.T) {
	f := newFixture(t, nil)
	_, err := f.DB.Exec(`
		CREATE TABLE customers (id text PRIMARY KEY, email text);
		CREATE FUNCTION announce() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN
			PERFORM oncebox_add('customer', to_jsonb(NEW), 'customer.changed', 'customer', NEW.id, source => 'crm');
			RETURN NULL;
		END $f$;
		CREATE TRIGGER announce AFTER INSERT OR UPDATE ON customers FOR EACH ROW EXECUTE FUNCTION announce();
		INSERT INTO customers VALUES ('c1', 'ann@example.org')`)
	require.NoError(t, err)
	rows := f.Fetch()
	require.Len(t, rows, 1)
	require.JSONEq(t, `{"id": "c1", "email": "ann@example.org"}`, string(rows[0].Payload))
	require.Equal(t, "crm", rows[0].Source)
}

func TestFunctionFollowsATenantThatMoved(t *testing.T) {
	f := newFixture(t, nil)
	outboxtest.Move(t, f.Store, "acme", 1)
	for range 2 {
		_, err := f.addBy(f.DB, "a", "e", ", tenant_id => 'acme'")
		require.NoError(t, err)
	}
	f.Commit(func(tx bun.Tx) {
		_, err := f.Add(t.Context(), tx, "order", []byte("x"), event.WithTenantID("acme"), event.WithAggregate("order", "a", 1))
		require.NoError(t, err)
	})
	require.Equal(t, 1, f.Count("(SELECT DISTINCT lane FROM outbox) l"))
	require.Equal(t, 3, f.Count("outbox WHERE lane BETWEEN 64 AND 127"))
}

func TestFunctionTakesTheSourceOfTheRole(t *testing.T) {
	f := newFixture(t, nil)
	f.Commit(func(tx bun.Tx) {
		_, err := tx.ExecContext(t.Context(), "SET LOCAL oncebox.source = 'billing'; SELECT oncebox_add('order', '{}', 'e')")
		require.NoError(t, err)
	})
	require.Equal(t, "billing", f.Fetch()[0].Source)
}

func TestFunctionRefusesWhatAddRefuses(t *testing.T) {
	f := newFixture(t, nil)
	const fine = "'order', '{}', 'e', source => 's'"
	for call, want := range map[string]string{
		"'', '{}', 'e', source => 's'":                                     "topic is empty",
		"'a/b', '{}', 'e', source => 's'":                                  `topic must not contain "/"`,
		"'a..b', '{}', 'e', source => 's'":                                 `topic must not contain "/"`,
		"'.', '{}', 'e', source => 's'":                                    `topic must not be "."`,
		"' a', '{}', 'e', source => 's'":                                   "topic begins or ends with a blank",
		"E'a\\u3000', '{}', 'e', source => 's'":                            "topic begins or ends with a blank",
		"'order', '{}', 'e'":                                               "source is empty",
		"'order', NULL, 'e', source => 's'":                                "payload is NULL",
		"'order', '{}', repeat('x', 256), source => 's'":                   "event_type has more than 255 bytes",
		"'order', '{}', repeat('ä', 128), source => 's'":                   "event_type has more than 255 bytes",
		fine + ", tenant_id => E'a\\u0085'":                                "tenant_id contains a control character",
		fine + ", tenant_id => E'a\\n'":                                    "tenant_id contains a control character",
		fine + ", aggregate_id => 'a'":                                     "aggregate_type is empty",
		fine + ", aggregate_type => 'a'":                                   "aggregate_id is empty",
		fine + ", ordering_key => 'a', routing_key => 'b'":                 "routing_key and ordering_key differ",
		fine + ", metadata => '[]'":                                        "metadata is not an object",
		fine + `, metadata => '{"a": 1}'`:                                  "metadata: 'a' is not a string",
		fine + `, metadata => '{"a": null}'`:                               "metadata: 'a' is not a string",
		fine + `, metadata => '{"": "a"}'`:                                 "metadata: the key '' is empty",
		fine + `, metadata => '{"a\nb": "a"}'`:                             "metadata: the key 'a\nb' is empty, longer than 255 bytes, or contains a",
		fine + ", metadata => jsonb_build_object('k', repeat('x', 65536))": "metadata takes 65537 bytes, at most 65536 are allowed",
		fine + ", not_before => 'infinity'":                                "not_before is not in the years from 1 to 9999",
		fine + ", expires_at => '0001-01-01 BC'":                           "expires_at is not in the years from 1 to 9999",
		fine + ", aggregate_version => -1":                                 "aggregate_version is negative",
		fine + ", schema_version => -1":                                    "schema_version is negative",
		fine + ", max_attempts => 32768":                                   "max_attempts is not from 0 to 32767",
		fine + ", max_attempts => -1":                                      "max_attempts is not from 0 to 32767",
		"'a%b', '{}', 'e', source => 's'":                                  `topic must not contain "/", "%"`,
		fine + ", ordering_key => E'a\\n'":                                 "ordering_key contains a control character",
		fine + ", routing_key => E'a\\n'":                                  "routing_key contains a control character",
		fine + ", dedup_key => E'a\\n'":                                    "dedup_key contains a control character",
		fine + ", schema_id => E'a\\n'":                                    "schema_id contains a control character",
		fine + ", metadata => jsonb_build_object(repeat('k', 256), 'v')":   "metadata: the key 'kkk",
		fine + ", occurred_at => 'infinity'":                               "occurred_at is not in the years from 1 to 9999",
		fine + ", payload_bytes => '1'":                                    "payload and payload_bytes are both given",
		fine + ", content_type => E'a\\n'":                                 "content_type contains a control character",
		"'order', NULL, 'e', source => 's', payload_bytes => '{'":          "payload_bytes is not valid JSON",
		"'order', NULL, 'e', source => 's', payload_bytes => '\\xff'":      "payload_bytes is not valid JSON",
		"'order', to_jsonb(repeat('x', 1048575)), 'e', source => 's'":      "payload has 1048577 bytes, and max_payload is 1048576",
	} {
		_, err := f.DB.ExecContext(t.Context(), "SELECT oncebox_add("+call+")")
		require.ErrorContains(t, err, "oncebox_add: "+want, call)
		require.Equal(t, "22023", pgerr.Code(err), call)
	}
	require.Zero(t, f.Count("outbox"))
	_, err := f.DB.ExecContext(t.Context(), "SELECT oncebox_add('order', to_jsonb(repeat('x', 1048575)), 'e', source => 's', max_payload => -1)")
	require.NoError(t, err)
}

func TestFunctionNoticesARowThatWasDropped(t *testing.T) {
	f := newFixture(t, nil)
	_, err := f.DB.Exec(`CREATE FUNCTION drop_row() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN RETURN NULL; END $f$;
		CREATE TRIGGER drop_row BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION drop_row()`)
	require.NoError(t, err)
	_, err = f.addBy(f.DB, "a", "e", "")
	require.ErrorContains(t, err, "the event was not stored")
}

// Tables of a later version place events in another way: this function would put them where no writer of theirs looks.
func TestFunctionRefusesAHashVersionItDoesNotKnow(t *testing.T) {
	f := newFixture(t, nil)
	_, err := f.DB.ExecContext(t.Context(), "UPDATE oncebox_settings SET hash_version = 2")
	require.NoError(t, err)
	_, err = f.DB.ExecContext(t.Context(), "SELECT oncebox_add('order', '{}', 'e', source => 's')")
	require.ErrorContains(t, err, "oncebox_add: the tables use hash version 2, and this function only version 1")
	var stored int
	require.NoError(t, f.DB.NewRaw("SELECT count(*) FROM outbox").Scan(t.Context(), &stored))
	require.Zero(t, stored)
}
