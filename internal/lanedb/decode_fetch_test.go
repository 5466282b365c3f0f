package lanedb_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
)

// Rows are read in two ways: from the binary protocol, and through database/sql behind a pooler. They must not differ.
func TestFetchReadsTheSameInBothWays(t *testing.T) {
	db := pgtest.Migrated(t, pgtest.Outbox)
	ctx := event.WithMetadata(t.Context(), event.Metadata{"correlation_id": `a "quoted" \ ü✓ id`, "x": ""})
	soon := time.Date(2400, time.February, 29, 12, 30, 15, 123_456_000, time.UTC) // further away than a Duration reaches
	binary, text := outbox.NewStore(db.DB, &outbox.Config{Source: "test"}), outbox.NewStore(db.DB, &outbox.Config{Source: "test", Pooler: true})
	for _, opts := range [][]event.AddOption{
		nil,
		{event.WithTenantID("übung"), event.WithOrderingKey("k|1"), event.WithAggregate("order", "o-1", 3)},
		{event.WithExpiry(soon), event.WithMaxAttempts(7), event.WithHeader("h", "v")},
		{event.WithNotBefore(soon)},
	} {
		inTx(t, db.DB, func(tx bun.Tx) {
			_, err := binary.Add(ctx, tx, "topic", []byte{0, 1, 255}, opts...)
			require.NoError(t, err)
		})
	}
	inTx(t, db.DB, func(tx bun.Tx) {
		_, err := binary.Add(context.Background(), tx, "topic", []byte{}) // no metadata, no payload
		require.NoError(t, err)
	})

	leases, err := lanedb.Of(binary.Handle()).Leases.Claim(t.Context(), "me", 0, 64, time.Minute)
	require.NoError(t, err)
	var cursors []lanedb.Cursor
	for _, l := range leases {
		cursors = append(cursors, lanedb.Cursor{Lease: l, Quota: 10})
	}
	got, err := lanedb.Of(binary.Handle()).Log.Fetch(t.Context(), cursors, 0)
	require.NoError(t, err)
	want, err := lanedb.Of(text.Handle()).Log.Fetch(t.Context(), cursors, 0)
	require.NoError(t, err)
	require.Len(t, want, 5)
	require.Equal(t, want, got)
	var keys []string
	for _, row := range got {
		keys = append(keys, row.Delivery.OrderingKey)
	}
	require.ElementsMatch(t, []string{"", "k|1", "", "", ""}, keys, "as it was set")
}

func inTx(t *testing.T, db *bun.DB, fn func(tx bun.Tx)) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{})
	require.NoError(t, err)
	defer tx.Rollback()
	fn(tx)
	require.NoError(t, tx.Commit())
}
