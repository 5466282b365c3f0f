package lanedb_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
)

// Values that are compared with each row of a lane are unpacked once. Otherwise the statistics of a long
// backlog take ten times as long.
func TestLongListOfALaneIsReadUnpacked(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Outbox)
	_, err := db.ExecContext(t.Context(), `INSERT INTO outbox_progress (lane, upto, sent, ahead, total)
		SELECT 7, 2000, 0, (SELECT range_agg(int8range(i, i + 1)) FROM generate_series(2, 1000, 2) i), 500`)
	require.NoError(t, err)
	var stored, read int
	require.NoError(t, db.NewRaw(`SELECT pg_column_size(p.ahead), pg_column_size(c.ahead)
		FROM outbox_progress p JOIN outbox_cursor c USING (lane) WHERE lane = 7`).Scan(t.Context(), &stored, &read))
	require.Less(t, stored, 500*8, "it is stored packed")
	require.Greater(t, read, 500*2*8)
}
