package serve_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/serve"
)

// Processes that start together run the script one after the other. A script that fails leaves nothing.
func TestTables(t *testing.T) {
	db := pgtest.Open(t)
	for range 10 {
		var all errgroup.Group
		for range 8 {
			all.Go(func() error {
				return serve.Tables(`CREATE TABLE IF NOT EXISTS runs (n int); INSERT INTO runs SELECT count(*) FROM runs`)(t.Context(), db.DB)
			})
		}
		require.NoError(t, all.Wait())
		var runs, different int
		require.NoError(t, db.NewRaw("SELECT count(*), count(DISTINCT n) FROM runs").Scan(t.Context(), &runs, &different))
		require.Equal(t, []int{8, 8}, []int{runs, different})
		require.ErrorContains(t, serve.Tables("DROP TABLE runs; SELECT 1/0")(t.Context(), db.DB), "serve: Tables")
		_, err := db.ExecContext(t.Context(), "DROP TABLE runs")
		require.NoError(t, err, "it is there")
	}
}
