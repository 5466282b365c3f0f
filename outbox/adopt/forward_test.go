package adopt_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/outbox/adopt"
)

// The trigger stores the same event as a mover, column by column.
func TestForwardStoresAsTheMover(t *testing.T) {
	const columns = "id, occurred_at, aggregate_version, schema_version, tenant_id, topic, ordering_key, aggregate_type, aggregate_id, event_type, source, " +
		"routing_key, content_type, event_metadata, encode(payload, 'hex'), lane"
	for name, c := range map[string]struct{ ddl, row, mapping string }{
		"all": {
			`CREATE TABLE old (id text PRIMARY KEY, version int, tenant text, payload json, meta json, at timestamp, nr bigserial, status text)`,
			`INSERT INTO old VALUES ('x''1', 3, 'a|c', '{"n":  1, "b": "\u0000"}', '{"k":"vé","n": {"a":  1.0},"z":null}',
				'2026-11-27 10:00:00.123456', 1, 'new')`,
			`{table: old, id: "{id}", topic: "o.{version}", type: "t'\\", aggregate_type: order, aggregate_id: "{id}|", aggregate_version: "{version}",
				tenant: "{tenant}", payload: "{payload}", metadata: "{meta}", headers: {k2: "{id}", k3: "{meta.missing}"}, occurred_at: "{at}",
				order: [nr], where: "status <> 'held'",
				unsent: {status: new}, mark: {status: sent}}`,
		},
		"base64 and a key": {
			`CREATE TABLE old (id uuid PRIMARY KEY, body jsonb, at timestamptz)`,
			`INSERT INTO old VALUES ('0193b2c4-0000-7000-8000-000000000001', '{"key":"k","data":"AP8="}', '2026-11-27 10:00Z')`,
			`{table: old, id: "{id}", topic: t, key: "{body.key}", payload: "{body.data}", base64: true, occurred_at: "{at}",
				source: crm, order: [id], delete: true}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, c.ddl)
			m := f.mover(c.mapping)
			f.exec(c.row)
			require.EqualValues(t, 1, f.once(m).Moved)
			want := f.events(columns)
			f.exec("TRUNCATE old, outbox")
			require.NoError(t, m.Forward(t.Context()))
			f.exec(c.row)
			require.Equal(t, want, f.events(columns))
			require.Zero(t, f.once(m).Left, "the row is marked or deleted")
			require.Len(t, f.events("id"), 1)
		})
	}
}

// Forward moves what is there. Afterwards rows are moved by the transactions of their writers, and no row that the mapping leaves out.
func TestForward(t *testing.T) {
	f := newFixture(t, orders)
	m := f.mover(mapOrders)
	f.exec(`INSERT INTO old (order_id, payload) SELECT i % 7, i::text FROM generate_series(1, 1200) i`)
	require.False(t, isForwarding(t, m))
	require.NoError(t, m.Forward(t.Context()))
	require.True(t, isForwarding(t, m))
	require.Equal(t, 1200, f.count("outbox"))
	f.exec(`INSERT INTO old (order_id, payload, sent_at) VALUES ('a', '1', NULL), ('a', '2', now())`)
	require.Equal(t, 1201, f.count("outbox"))
	require.Zero(t, f.count("old WHERE sent_at IS NULL"))
	require.NoError(t, m.Forward(t.Context()), "again, for a changed mapping")

	// The key is locked by COMMIT, and not before.
	require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO old (order_id, payload) VALUES ('a', '2')`)
		require.NoError(t, err)
		var locks int
		require.NoError(t, tx.NewRaw("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()").Scan(ctx, &locks))
		require.Zero(t, locks)
		return nil
	}))
	require.Equal(t, 1202, f.count("outbox"))
	undone, err := f.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = undone.ExecContext(t.Context(), `INSERT INTO old (order_id, payload) VALUES ('a', '3')`)
	require.NoError(t, err)
	require.NoError(t, undone.Rollback())
	require.Equal(t, 1202, f.count("outbox"))

	require.NoError(t, m.StopForwarding(t.Context()))
	require.NoError(t, m.StopForwarding(t.Context()), "twice")
	require.False(t, isForwarding(t, m))
	f.exec(`INSERT INTO old (order_id, payload) VALUES ('a', 'bad'), ('b', '4')`)
	require.Equal(t, 1202, f.count("outbox"))
	require.Equal(t, 2, f.count("old WHERE sent_at IS NULL"))
	require.ErrorContains(t, m.Forward(t.Context()), `1 rows are left that cannot be moved, such as row "1205": the payload is not valid JSON`)
}

func isForwarding(t *testing.T, m *adopt.Mover) bool {
	t.Helper()
	is, err := m.IsForwarding(t.Context())
	require.NoError(t, err)
	return is
}

// A writer with no other right than INSERT is forwarded.
func TestForwardForAWriterWithoutRights(t *testing.T) {
	f := newFixture(t, orders)
	m := f.mover(mapOrders)
	require.NoError(t, m.Forward(t.Context()))
	role := f.db.Schema + "_writer"
	f.exec("CREATE ROLE " + role)
	defer f.exec("DROP OWNED BY " + role + "; DROP ROLE " + role)
	f.exec("GRANT USAGE ON SCHEMA " + f.db.Schema + " TO " + role + "; GRANT INSERT ON old TO " + role + "; GRANT USAGE ON SEQUENCE old_id_seq TO " + role)
	require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.ExecContext(ctx, "SET LOCAL ROLE "+role+"; INSERT INTO old (order_id, payload) VALUES ('a', '1')")
		return err
	}))
	require.Equal(t, 1, f.count("outbox"))
}

// forward forwards again as long as somebody holds the table: on a busy machine a writer's transaction may outlast all tries of one call.
func (f *fixture) forward(m *adopt.Mover) {
	f.t.Helper()
	await.True(f.t, func() bool {
		err := m.Forward(f.t.Context())
		if pgerr.Code(err) != pgerr.LockNotAvailable {
			require.NoError(f.t, err)
		}
		return err == nil
	}, "rows are forwarded")
}

// A transaction that has written to the table when Forward begins is waited for, and its row is not missed.
func TestForwardWaitsForWriters(t *testing.T) {
	f := newFixture(t, orders)
	m := f.mover(mapOrders)
	late, err := f.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = late.ExecContext(t.Context(), `INSERT INTO old (order_id, payload) VALUES ('a', '1')`)
	require.NoError(t, err)
	time.AfterFunc(1500*time.Millisecond, func() { _ = late.Commit() })
	f.forward(m)
	require.Equal(t, []string{"1"}, f.events("convert_from(payload, 'UTF8')"))
}

// Old and new code write the same keys while the mover runs and Forward comes. The order of the business is that of the outbox: each key's numbers grow.
func TestOldAndNewCodeTogether(t *testing.T) {
	f := newFixture(t, orders)
	f.exec(`CREATE TABLE orders (id text PRIMARY KEY, n int NOT NULL DEFAULT 0)`)
	f.exec(`INSERT INTO orders SELECT i::text FROM generate_series(0, 4) i`)
	const next = "UPDATE orders SET n = n + 1 WHERE id = ? RETURNING n"
	write := func(key int, add func(ctx context.Context, tx bun.Tx, n int) error) {
		require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			var n int
			if err := tx.NewRaw(next, fmt.Sprint(key)).Scan(ctx, &n); err != nil {
				return err
			}
			return add(ctx, tx, n)
		}))
	}
	old := func(key int) {
		write(key, func(ctx context.Context, tx bun.Tx, n int) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO old (order_id, payload) VALUES (?, ?)", fmt.Sprint(key), fmt.Sprint(n))
			return err
		})
	}
	fresh := func(key int) {
		write(key, func(ctx context.Context, tx bun.Tx, n int) error {
			_, err := f.store.Add(ctx, tx, "order", n, event.WithAggregate("order", fmt.Sprint(key), 0))
			return err
		})
	}
	m := f.mover(mapOrders)
	var writers sync.WaitGroup
	each := func(rounds int, do ...func(int)) {
		for w := range 4 {
			writers.Go(func() {
				for i := range rounds {
					do[(w+i)%len(do)]((w + i) % 5)
				}
			})
		}
	}
	each(40, old)
	f.forward(m)
	each(60, old, fresh)
	writers.Wait()
	each(20, fresh)
	writers.Wait()
	require.Equal(t, 480, f.count("outbox"))
	require.Zero(t, f.count(`(SELECT convert_from(payload, 'UTF8')::int - row_number() OVER (PARTITION BY aggregate_id ORDER BY seq) AS off FROM outbox) x
		WHERE off <> 0`))
}

// Without a key the trigger could not find its row.
func TestForwardNeedsAKey(t *testing.T) {
	f := newFixture(t, strings.Replace(orders, "PRIMARY KEY", "", 1))
	require.ErrorContains(t, f.mover(mapOrders).Forward(t.Context()), "the table has no primary key")
}

// A value that does not fit its column would fail each writer, so it is refused, although the table has no row.
func TestForwardWithAValueThatDoesNotFit(t *testing.T) {
	f := newFixture(t, orders)
	m := f.mover(strings.Replace(mapOrders, "mark: {", "mark: {id: many, ", 1))
	require.ErrorContains(t, m.Forward(t.Context()), `invalid input syntax for type bigint: "many"`)
	require.False(t, isForwarding(t, m))
}

// A condition that only the search_path of the mover understands is refused: in the trigger it would fail each writer.
func TestForwardWithoutASearchPath(t *testing.T) {
	f := newFixture(t, orders)
	f.exec(`CREATE TABLE done (id bigint)`)
	const where = "where: NOT EXISTS (SELECT FROM done d WHERE d.id = r.id)"
	m := f.mover(mapOrders + where)
	f.exec(`INSERT INTO old (order_id, payload) VALUES ('a', '1')`)
	require.ErrorContains(t, m.Forward(t.Context()), "where has to name tables and functions with their schemas")
	require.False(t, isForwarding(t, m))
	m = f.mover(mapOrders + strings.Replace(where, "done d", f.db.Schema+".done d", 1))
	require.NoError(t, m.Forward(t.Context()))
	f.exec(`INSERT INTO done VALUES (3)`)
	f.exec(`INSERT INTO old (order_id, payload) VALUES ('a', '2'), ('a', '3')`)
	require.Equal(t, []string{"1", "2"}, f.events("convert_from(payload, 'UTF8')"))
}

// A writer that does not end is named as the reason.
func TestForwardIsHeldUpByAnOpenTransaction(t *testing.T) {
	t.Parallel()
	f := newFixture(t, orders)
	m := f.mover(mapOrders)
	tx, err := f.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), `INSERT INTO old (order_id, payload) VALUES ('o-1', '{}')`)
	require.NoError(t, err)
	err = m.Forward(t.Context())
	require.ErrorContains(t, err, "a transaction that has written to the table stays open: end it")
	require.ErrorContains(t, err, "pg_stat_activity")
	require.NoError(t, tx.Commit())
	require.NoError(t, m.Forward(t.Context()))
	require.Equal(t, []string{"o-1"}, f.events("aggregate_id"))
}
