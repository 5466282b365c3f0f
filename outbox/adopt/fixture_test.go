package adopt_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/adopt"
	"github.com/oncebox/oncebox/telemetry"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// fixture is a database with the tables of oncebox and an old table.
type fixture struct {
	t     *testing.T
	db    *pgtest.DB
	store *outbox.Store
}

func newFixture(t *testing.T, ddl string) *fixture {
	t.Helper()
	db := pgtest.Migrated(t, pgtest.Outbox)
	f := &fixture{t, db, outbox.NewStore(db.DB, &outbox.Config{Source: "shop"})}
	f.exec(ddl)
	return f
}

func (f *fixture) storeOf(db *bun.DB, to telemetry.Config) *outbox.Store {
	return outbox.NewStore(db, &outbox.Config{Source: "shop", Telemetry: to})
}

func (f *fixture) exec(query string, args ...any) {
	f.t.Helper()
	_, err := f.db.ExecContext(f.t.Context(), query, args...)
	require.NoError(f.t, err)
}

func (f *fixture) count(query string) (n int) {
	f.t.Helper()
	require.NoError(f.t, f.db.NewRaw("SELECT count(*) FROM "+query).Scan(f.t.Context(), &n))
	return n
}

func (f *fixture) mapping(yaml string) *adopt.Mapping {
	f.t.Helper()
	m, err := adopt.Read(strings.NewReader(yaml))
	require.NoError(f.t, err)
	return m
}

func (f *fixture) mover(yaml string) *adopt.Mover {
	f.t.Helper()
	return f.moverOf(f.mapping(yaml), nil)
}

func (f *fixture) moverOf(m *adopt.Mapping, cfg *adopt.Config) *adopt.Mover {
	f.t.Helper()
	mover, err := adopt.New(f.t.Context(), f.store, m, cfg)
	require.NoError(f.t, err)
	return mover
}

// once moves what is there.
func (f *fixture) once(m *adopt.Mover) adopt.Summary {
	f.t.Helper()
	s, err := m.Once(f.t.Context())
	require.NoError(f.t, err)
	return s
}

// events lists what is in the outbox, in the order of the numbers, each as one text.
func (f *fixture) events(columns string) (list []string) {
	f.t.Helper()
	require.NoError(f.t, f.db.NewRaw("SELECT concat_ws(' ', "+columns+") FROM outbox ORDER BY seq").Scan(f.t.Context(), &list))
	return list
}

// orders is a hand-written outbox with the smallest number of columns, and its mapping.
const (
	orders = `CREATE TABLE old (id bigserial PRIMARY KEY, order_id text, payload text, created_at timestamptz DEFAULT now(), sent_at timestamptz)`

	mapOrders = `
table: old
id: "{id}"
topic: order
type: order.changed
aggregate_type: order
aggregate_id: "{order_id}"
payload: "{payload}"
occurred_at: "{created_at}"
order: [id]
unsent: {sent_at: null}
mark: {sent_at: now()}
`
)
