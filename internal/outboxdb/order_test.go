package outboxdb_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// The lanes and the locks of existing rows rest on this function: these values never change.
func TestLaneHashIsFrozen(t *testing.T) {
	for key, want := range map[string]uint64{
		"":                     0xefd01f60ba992926,
		"default|order|1":      0x30dc73d3ba48e90a,
		"default|order|2":      0xc451a5177cd908c1,
		"tenant-b|customer|ä✓": 0x1c32dc4a436a2461,
	} {
		require.Equal(t, want, outboxdb.LaneHash(key), "key %q", key)
	}
}

// Several writers per key, without any other lock, and the order of their commits taken from a counter that each
// commits with. The sequence must agree with it for every key.
func TestSequenceIsTheOrderOfCommit(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, nil)
	_, err := f.DB.ExecContext(ctx, `CREATE SEQUENCE committed; CREATE TABLE commit_order (id uuid, key text, n bigint)`)
	require.NoError(t, err)

	write := func(rng *rand.Rand) error {
		tx, err := f.DB.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // else the others would wait for its locks and its connection
		var evs []event.Envelope
		for _, k := range rng.Perm(6)[:1+rng.IntN(3)] {
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
	for seed := range nightly.Seeds(t, 1, 20) {
		var writers errgroup.Group
		for writer := range uint64(8) {
			rng := rand.New(rand.NewPCG(seed, writer))
			writers.Go(func() error {
				for range 60 {
					if err := write(rng); err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(t, writers.Wait())
		var inversions int
		require.NoError(t, f.DB.NewRaw(`SELECT count(*) FROM (
			SELECT o.seq, lag(o.seq) OVER (PARTITION BY c.key ORDER BY c.n) AS before FROM commit_order c JOIN outbox o USING (id)) x
			WHERE before > seq`).Scan(ctx, &inversions))
		require.Zero(t, inversions)
	}
}

// However many events a flush has, its numbers are drawn under the locks of their keys, and lanes are computed under them too.
func TestNumberIsDrawnUnderTheLock(t *testing.T) {
	f := newFixture(t, nil)
	paid := func(key string) event.Envelope {
		e := f.envelope(key)
		e.Type = "paid" // so it is like the others of its key and unlike those of another
		return e
	}
	for name, keys := range map[string][]string{
		"one": {"a"}, "alike": {"a", "a", "a"}, "of two keys": {"b", "a"},
		"many of one key": slices.Repeat([]string{"a"}, 20), "many": append(slices.Repeat([]string{"b"}, 19), "a"),
	} {
		t.Run(name, func(t *testing.T) {
			earlier, err := f.DB.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { _ = earlier.Rollback() }()
			first := []event.Envelope{f.envelope(keys[len(keys)-1])}
			require.NoError(t, f.Flush(t.Context(), earlier, first))
			evs := make([]event.Envelope, len(keys))
			for n, key := range keys {
				evs[n] = paid(key)
			}
			flushed := make(chan error, 1)
			go func() {
				flushed <- f.DB.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error { return f.Flush(ctx, tx, evs) })
			}()
			await.True(t, func() bool {
				return len(flushed) > 0 || f.Count(`pg_locks, oncebox_settings WHERE locktype = 'advisory' AND NOT granted
					AND classid = (lock_space::bigint & 4294967295)::oid`) == 1
			}, "the flush to wait for the lock")
			require.Empty(t, flushed)
			var drawn int64
			require.NoError(t, earlier.NewRaw("SELECT nextval('outbox_seq')").Scan(t.Context(), &drawn))
			_, err = earlier.Exec("SELECT nextval('outbox_moves')") // as somebody who moves a tenant does, under the lock
			require.NoError(t, err)
			_, err = earlier.Exec("INSERT INTO outbox_tenant (tenant_id, grp) VALUES ('default', 1) ON CONFLICT (tenant_id) DO UPDATE SET grp = 1")
			require.NoError(t, err)
			require.NoError(t, earlier.Commit())
			require.NoError(t, <-flushed)
			for n := range evs {
				drawn++
				require.Equal(t, drawn, evs[n].Sequence, n)
			}
			require.Equal(t, len(evs), f.Count("outbox WHERE event_type = 'paid' AND lane BETWEEN 64 AND 127"), "in the lanes of the new group")
			_, err = f.DB.Exec("DELETE FROM outbox; DELETE FROM outbox_tenant; ALTER SEQUENCE outbox_moves RESTART")
			require.NoError(t, err)
		})
	}
}

func (f *fixture) envelope(key string) event.Envelope {
	f.T.Helper()
	return event.Envelope{
		ID: uuid.Must(uuid.NewV7()).String(), Type: "t", Source: "test", TenantID: "default", AggregateType: "order", AggregateID: key,
		Topic: "order", RoutingKey: key, OccurredAt: time.Now(), ContentType: "application/json", Payload: []byte("{}"),
	}
}
