package upkeep_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
)

// Projectors that start at once on a database that is nobody's: the first one names it, and the others see that name.
func TestOneDeploymentNamesADatabase(t *testing.T) {
	for mine, want := range map[string]string{"production": "", "staging": `it is "production", Config.Deployment is "staging"`} {
		t.Run(mine, func(t *testing.T) {
			db := pgtest.Migrated(t, pgtest.Outbox)
			first, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { _ = first.Rollback() }()
			var pid int
			require.NoError(t, first.NewRaw("UPDATE oncebox_settings SET deployment = 'production' RETURNING pg_backend_pid()").Scan(t.Context(), &pid))

			store := outbox.NewStore(db.Another(t), &outbox.Config{Deployment: mine})
			late := make(chan error, 1)
			go func() { late <- lanedb.Of(store.Handle()).Leases.CheckOwner(context.Background()) }()
			await.True(t, func() bool {
				n, err := db.NewSelect().Table("pg_stat_activity").Where("? = ANY (pg_blocking_pids(pid))", pid).Count(t.Context())
				return err == nil && n == 1
			}, "the claim waits for the first one")
			require.NoError(t, first.Commit())
			err = <-late
			if want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, lanedb.ErrForeignDatabase)
			require.ErrorContains(t, err, want)
		})
	}
}
