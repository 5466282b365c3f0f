package outbox_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/migrations"
	"github.com/oncebox/oncebox/outbox"
)

var testTime = time.Date(2026, 11, 21, 8, 0, 0, 123456000, time.UTC)

func newID(t *testing.T) string {
	t.Helper()
	id, err := uuid.NewV7()
	require.NoError(t, err)
	return id.String()
}

func TestAddRefusesWhatCannotBeCarried(t *testing.T) {
	f := newFixture(t, nil)
	for name, c := range map[string]struct {
		payload []byte
		opt     event.AddOption
		want    string
	}{
		"payload":  {bytes.Repeat([]byte("x"), 1<<20+1), event.WithType("t"), "at most 1048576"},
		"nul":      {nil, event.WithAggregate("order", "a\x00b", 1), "AggregateID"},
		"utf8":     {nil, event.WithTenantID("a\xff"), "TenantID"},
		"long":     {nil, event.WithType(strings.Repeat("x", 256)), "at most 255"},
		"metadata": {nil, event.WithHeader("k", "\x00"), "Metadata[k]"},
		"id":       {nil, event.WithID("1"), "not a UUID"},
	} {
		t.Run(name, func(t *testing.T) {
			tx, err := f.DB.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = f.Add(t.Context(), tx, "order", c.payload, c.opt)
			require.ErrorIs(t, err, event.ErrInvalid)
			require.ErrorContains(t, err, c.want)
			// The caller's transaction goes on: nothing reached the server.
			_, err = f.Add(t.Context(), tx, "order", []byte("fine"))
			require.NoError(t, err)
			require.NoError(t, tx.Rollback())
		})
	}
	_, err := pgtest.Add(t.Context(), f.DB.DB, f, "a/b", nil)
	require.ErrorContains(t, err, "Topic")
	for what, add := range map[string]func() (string, error){
		"bun": func() (string, error) { return f.Add(t.Context(), bun.Tx{}, "order", nil) },
		"sql": func() (string, error) { return f.AddSQL(t.Context(), nil, "order", nil) },
		"pgx": func() (string, error) { return f.AddPgx(t.Context(), nil, "order", nil) },
	} {
		_, err := add()
		require.ErrorContains(t, err, "the transaction is nil", what)
	}
}

// Flush takes what bun takes for a transaction or a pool.
func TestFlushRefusesWhatIsNoTransaction(t *testing.T) {
	f := newFixture(t, nil)
	conn, err := f.DB.Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	evs := func() []event.Envelope {
		return []event.Envelope{{ID: newID(t), Type: "e", Source: "test", TenantID: "default", Topic: "order", OccurredAt: testTime}}
	}
	for want, handles := range map[string][]bun.IDB{
		"the transaction is nil": {nil, bun.Tx{}, &bun.Tx{}, (*bun.Tx)(nil)},
		"may be none: begin one": {f.DB.DB, conn},
	} {
		for _, handle := range handles {
			require.ErrorContains(t, f.Flush(t.Context(), handle, evs()), want, "%T", handle)
		}
	}
	require.Zero(t, f.Count("outbox"))
	f.Commit(func(tx bun.Tx) { require.NoError(t, f.Flush(t.Context(), &tx, evs())) })
	require.Equal(t, 1, f.Count("outbox"))
}

func TestAddKeepsEveryField(t *testing.T) {
	f := newFixture(t, nil)
	ctx := event.WithMetadata(event.WithTenant(t.Context(), "acme"), event.Metadata{"correlation_id": "c-1", "quote\"": "\\u0000'"})
	at := testTime.Add(time.Hour)
	id, err := pgtest.Add(ctx, f.DB.DB, f, "order", []byte{0, 1, 0xff}, event.WithType("order.placed"), event.WithSchema("schema-7", 3),
		event.WithAggregate("order", "ä'\\u0000\"", 7), event.WithRoutingKey("route"), event.WithContentType("application/x-bytes"),
		event.WithExpiry(at.Add(1000*time.Hour)), event.WithMaxAttempts(9))
	require.NoError(t, err)
	rows := f.Fetch()
	require.Len(t, rows, 1)
	got := rows[0]
	require.Equal(t, id, got.ID)
	require.Equal(t, event.Metadata{"correlation_id": "c-1", "quote\"": "\\u0000'"}, got.Metadata)
	require.Equal(t, []byte{0, 1, 0xff}, got.Payload)
	require.Equal(t, "acme|order|ä'\\\\u0000\"", got.Key)
	want := event.Envelope{
		ID: id, Type: "order.placed", Source: "test", SchemaID: "schema-7", SchemaVersion: 3, TenantID: "acme",
		AggregateType: "order", AggregateID: "ä'\\u0000\"", AggregateVersion: 7, Sequence: got.Sequence, Topic: "order",
		RoutingKey: "route", OccurredAt: got.OccurredAt, ContentType: "application/x-bytes", Metadata: got.Metadata,
		Payload: got.Payload, Delivery: got.Delivery,
	}
	require.Equal(t, want, got.Envelope)
	require.Equal(t, 9, got.Delivery.MaxAttempts)
	require.True(t, got.Delivery.ExpiresAt.Equal(at.Add(1000*time.Hour)))
}

func TestMissingTablesNameTheCall(t *testing.T) {
	db := pgtest.Open(t)
	store := outbox.NewStore(db.DB, &outbox.Config{Source: "test"})
	_, err := pgtest.Add(t.Context(), db.DB, store, "order", nil)
	require.ErrorContains(t, err, "migrations.Up")
	require.ErrorContains(t, store.Ping(t.Context()), "migrations.Up")
}

func TestASchemaOfItsOwn(t *testing.T) {
	db := pgtest.Open(t)
	schema := db.Schema + "_own \"quoted"
	t.Cleanup(func() {
		_, err := db.Exec(`DROP SCHEMA IF EXISTS "` + strings.ReplaceAll(schema, `"`, `""`) + `" CASCADE`)
		require.NoError(t, err)
	})
	require.NoError(t, migrations.Up(t.Context(), db.DB, &migrations.Config{Schema: schema}))
	for _, pooler := range []bool{false, true} {
		store := outbox.NewStore(db.DB, &outbox.Config{Source: "test", Schema: schema, Pooler: pooler})
		_, err := pgtest.Add(t.Context(), db.DB, store, "order", nil)
		require.NoError(t, err)
		require.NoError(t, store.Clean(t.Context()))
	}
}
