package adopt_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/outbox/adopt"
)

// A mover that is in the middle of its transaction, however long that takes, keeps no writer of the old table waiting, nor a reader.
func TestWritersDoNotWait(t *testing.T) {
	f := newFixture(t, orders)
	f.exec(`CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(hashtext(current_schema())); RETURN NEW; END'`)
	f.exec(`CREATE TRIGGER hold BEFORE UPDATE ON old FOR EACH ROW EXECUTE FUNCTION hold()`)
	f.write("a", "1", "2")
	holding, err := f.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = holding.ExecContext(t.Context(), `SELECT pg_advisory_xact_lock(hashtext(current_schema()))`)
	require.NoError(t, err)
	moved := make(chan adopt.Summary, 1)
	m := f.mover(mapOrders)
	go func() {
		s, _ := m.Once(t.Context())
		moved <- s
	}()
	await.True(t, func() bool {
		return f.count("pg_stat_activity WHERE wait_event = 'advisory' AND query LIKE 'UPDATE \""+f.db.Schema+"\".\"old\"%'") == 1
	}, "the mover marks rows")
	for i := range 20 {
		require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			// The server ends a statement that waits for a lock.
			_, err := tx.ExecContext(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = '1ms'; INSERT INTO old (order_id, payload) VALUES ('a', '%d');
				SELECT FROM old`, i))
			return err
		}))
	}
	require.NoError(t, holding.Commit())
	await.Receive(t, moved, "the mover goes on")
	require.EqualValues(t, 22, f.once(m).Moved)
}

// The old publisher runs although it should not. If it locks the rows that it publishes, each row is published by one of the two. If it does not, a row may
// be published twice, with the same id.
func TestOldPublisherRunsBeside(t *testing.T) {
	for name, lock := range map[string]string{"it locks rows": "FOR UPDATE SKIP LOCKED", "it locks nothing": ""} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, `CREATE TABLE old (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), n bigserial, order_id text, payload text,
				sent_at timestamptz)`)
			const rows = 400
			mapping := `{table: old, id: "{id}", topic: order, aggregate_type: order, aggregate_id: "{order_id}", payload: "{payload}", order: [n],
				unsent: {sent_at: null}, mark: {sent_at: now()}}`
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var running sync.WaitGroup
			m := f.moverOf(f.mapping(mapping), &adopt.Config{BatchSize: 7, Interval: time.Millisecond})
			running.Go(func() { _ = m.Run(ctx) })
			var published []string // by the old publisher
			pool := f.db.Another(t)
			running.Go(func() {
				for ctx.Err() == nil {
					_ = pool.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
						var ids []string
						if err := tx.NewRaw("SELECT id FROM old WHERE sent_at IS NULL ORDER BY n LIMIT 3 "+lock).Scan(ctx, &ids); err != nil || len(ids) == 0 {
							return err
						}
						published = append(published, ids...)
						_, err := tx.NewRaw("UPDATE old SET sent_at = now() WHERE id IN (?)", bun.List(ids)).Exec(ctx)
						return err
					})
				}
			})
			for i := range rows {
				f.exec(`INSERT INTO old (order_id, payload) VALUES (?, ?)`, fmt.Sprint(i%5), fmt.Sprint(i))
			}
			await.True(t, func() bool { return f.count("old WHERE sent_at IS NULL") == 0 }, "all rows are sent")
			stop()
			running.Wait()
			times := map[string]int{}
			for _, id := range append(published, f.events("id")...) {
				times[id]++
			}
			require.Len(t, times, rows, "none is lost, and each has its own id")
			if lock != "" {
				for id, n := range times {
					require.Equal(t, 1, n, id)
				}
			}
			require.Equal(t, len(f.events("id")), f.count("(SELECT DISTINCT id FROM outbox) x"), "adopt moves each row once")
		})
	}
}

// New code is rolled back to old code, while both run, and deployed again. The numbers of each key grow all the way.
func TestBackToOldCode(t *testing.T) {
	f := newFixture(t, orders)
	f.exec(`CREATE TABLE orders (id text PRIMARY KEY, n int NOT NULL DEFAULT 0)`)
	f.exec(`INSERT INTO orders SELECT i::text FROM generate_series(0, 4) i`)
	change := func(key string, fresh bool) error {
		return f.db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			var n int
			if err := tx.NewRaw("UPDATE orders SET n = n + 1 WHERE id = ? RETURNING n", key).Scan(ctx, &n); err != nil {
				return err
			}
			if fresh {
				return f.addIn(ctx, tx, key, fmt.Sprint(n))
			}
			_, err := tx.ExecContext(ctx, "INSERT INTO old (order_id, payload) VALUES (?, ?)", key, fmt.Sprint(n))
			return err
		})
	}
	m, second := f.mover(mapOrders), f.moverOf(f.mapping(mapOrders), &adopt.Config{Interval: time.Millisecond})
	require.NoError(t, m.Forward(t.Context()))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	moving := make(chan error, 1)
	go func() { moving <- second.Run(ctx) }()
	var written atomic.Int64
	for _, newWriters := range []int{0, 2, 4, 1, 0, 3, 4} { // of four
		var writers sync.WaitGroup
		for w := range 4 {
			writers.Go(func() {
				for i := range 15 {
					if err := change(fmt.Sprint((w+i)%5), w < newWriters); err == nil {
						written.Add(1)
					}
				}
			})
		}
		writers.Wait()
		f.forward(m) // a second process forwards again
	}
	stop()
	require.NoError(t, await.Receive(t, moving, "the mover ends"))
	// All the way back: the old publisher takes over, so nothing may be forwarded any more.
	require.NoError(t, m.StopForwarding(t.Context()))
	require.NoError(t, change("0", false))
	require.Equal(t, 1, f.count("old WHERE sent_at IS NULL"))
	require.EqualValues(t, written.Load(), f.count("outbox"))
	require.Zero(t, f.count(`(SELECT convert_from(payload, 'UTF8')::int - row_number() OVER (PARTITION BY aggregate_id ORDER BY seq) AS off FROM outbox) x
		WHERE off <> 0`))
}
