package outboxdb_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/event"
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

func (f *fixture) envelope(key string) event.Envelope {
	f.T.Helper()
	return event.Envelope{
		ID: uuid.Must(uuid.NewV7()).String(), Type: "t", Source: "test", TenantID: "default", AggregateType: "order", AggregateID: key,
		Topic: "order", RoutingKey: key, OccurredAt: time.Now(), ContentType: "application/json", Payload: []byte("{}"),
	}
}
