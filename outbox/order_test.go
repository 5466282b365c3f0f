package outbox_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox"
)

// The lanes and the locks of existing rows rest on this function: these values never change.
func TestLaneHashIsFrozen(t *testing.T) {
	for key, want := range map[string]uint64{
		"":                     0xefd01f60ba992926,
		"default|order|1":      0x30dc73d3ba48e90a,
		"default|order|2":      0xc451a5177cd908c1,
		"tenant-b|customer|ä✓": 0x1c32dc4a436a2461,
	} {
		require.Equal(t, want, outbox.LaneHash(key), "key %q", key)
	}
}

// Several writers per key, without any other lock, and the order of their commits taken from a counter that each
// commits with. The sequence must agree with it for every key.
func TestSequenceIsTheOrderOfCommit(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, nil)
	_, err := f.db.ExecContext(ctx, `CREATE SEQUENCE committed; CREATE TABLE commit_order (id uuid, key text, n bigint)`)
	require.NoError(t, err)

	write := func() error {
		tx, err := f.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // else the others would wait for its locks and its connection
		var evs []event.Envelope
		for _, k := range rand.Perm(6)[:1+rand.IntN(3)] {
			evs = append(evs, f.envelope(strconv.Itoa(k)))
		}
		if err := f.Flush(ctx, tx, evs); err != nil {
			return err
		}
		// Drawn while the locks of the keys are held, so that it is the order of commit.
		for _, e := range evs {
			if _, err := tx.Exec(`INSERT INTO commit_order VALUES (?, ?, nextval('committed'))`, e.ID, e.AggregateID); err != nil {
				return err
			}
		}
		return tx.Commit()
	}
	var writers errgroup.Group
	for range 8 {
		writers.Go(func() error {
			for range 60 {
				if err := write(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, writers.Wait())
	var inversions int
	require.NoError(t, f.db.NewRaw(`SELECT count(*) FROM (
		SELECT o.seq, lag(o.seq) OVER (PARTITION BY c.key ORDER BY c.n) AS before FROM commit_order c JOIN outbox o USING (id)) x
		WHERE before > seq`).Scan(ctx, &inversions))
	require.Zero(t, inversions)
}

func (f *fixture) envelope(key string) event.Envelope {
	f.t.Helper()
	return event.Envelope{
		ID: newID(f.t), Type: "t", Source: "test", TenantID: "default", AggregateType: "order", AggregateID: key,
		Topic: "order", RoutingKey: key, OccurredAt: testTime, ContentType: "application/json", Payload: []byte("{}"),
	}
}

func TestFetchAndSettleUseTheIndex(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, nil)
	_, err := f.db.ExecContext(ctx, `INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, event_type, source, payload)
		SELECT gen_random_uuid(), now(), i % 64, 'default', 'order', 't', 'test', 'x' FROM generate_series(1, 50000) i; ANALYZE outbox`)
	require.NoError(t, err)
	lanes, epochs := []string{}, []string{}
	for n := range 16 {
		lanes, epochs = append(lanes, strconv.Itoa(n)), append(epochs, "1")
	}
	array := func(s []string) string { return "{" + strings.Join(s, ",") + "}" }
	zeros := array(slices.Repeat([]string{"0"}, 16))
	plan := f.explain(outbox.FetchFew, "me", array(lanes), array(epochs), zeros, array(slices.Repeat([]string{"31"}, 16)))
	require.Contains(t, plan, "Index Scan using outbox_pkey", "quota 31, 781 rows a lane")
	require.NotContains(t, plan, "Bitmap")
	plan = f.explain(outbox.SettleRows, "me", array(lanes), array(epochs), array(lanes), zeros)
	require.Contains(t, plan, "Index Scan using outbox_pkey")

	_, err = f.db.ExecContext(ctx, `INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, event_type, source, payload)
		SELECT gen_random_uuid(), now(), i % 64, 'default', 'order', 't', 'test', 'x' FROM generate_series(1, 150000) i; ANALYZE outbox`)
	require.NoError(t, err)
	for name, plan := range map[string]string{
		"fetch":   f.explain(outbox.FetchMany, "me", array(lanes), array(epochs), zeros, array(slices.Repeat([]string{"500"}, 16))),
		"scan":    f.explain(outbox.GlanceRows, array(lanes), zeros, "{elsewhere}", "{}"),
		"tenants": f.explain(outbox.GlanceTenants, array(lanes), zeros, "{}"),
		"pick":    f.explain(outbox.PickRows, "me", array(lanes), array(epochs), array(lanes), zeros),
	} {
		require.Contains(t, plan, "Index Scan using outbox_pkey", name)
		require.NotContains(t, plan, "Bitmap Heap Scan on outbox o", name)
	}
}

// explain returns the generic plan, the one that a prepared statement ends up with.
func (f *fixture) explain(statement string, args ...string) string {
	f.t.Helper()
	ctx := f.t.Context()
	conn, err := f.db.DB.DB.Conn(ctx)
	require.NoError(f.t, err)
	defer conn.Close()
	for _, s := range []string{"SET plan_cache_mode = force_generic_plan", "PREPARE p AS " + f.Text(statement)} {
		_, err := conn.ExecContext(ctx, s)
		require.NoError(f.t, err)
	}
	rows, err := conn.QueryContext(ctx, "EXPLAIN EXECUTE p ('"+strings.Join(args, "', '")+"')")
	require.NoError(f.t, err)
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var line string
		require.NoError(f.t, rows.Scan(&line))
		plan.WriteString(line + "\n")
	}
	require.NoError(f.t, rows.Err())
	_, err = conn.ExecContext(ctx, "DEALLOCATE p")
	require.NoError(f.t, err)
	return plan.String()
}
