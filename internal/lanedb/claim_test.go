package lanedb_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/outbox"
)

// A projector that comes waits until lanes are handed back, or their leases end.
func TestClaimTakesNoLaneThatIsHeld(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	_, err := f.DB.ExecContext(t.Context(), "UPDATE outbox_lane SET lease_until = '-infinity' WHERE lane IN (3, 5)")
	require.NoError(t, err)
	leases, err := lanedb.Of(f.Handle()).Leases.Claim(t.Context(), "somebody", 0, 64, time.Hour)
	require.NoError(t, err)
	require.Len(t, leases, 2)
	require.ElementsMatch(t, []int16{3, 5}, []int16{leases[0].Lane, leases[1].Lane})
}

// A LIMIT beside FOR UPDATE SKIP LOCKED is worth nothing where the planner evaluates it once per outer row. Whatever the
// plan, a claim takes as many lanes as it asked for, and no two take the same.
func TestClaimTakesNoMoreThanItAskedFor(t *testing.T) {
	f := newFixture(t, nil)
	f.expire()
	for _, planner := range []string{"", "enable_hashjoin enable_mergejoin enable_hashagg enable_sort enable_material"} {
		u, err := url.Parse(f.DB.DSN)
		require.NoError(t, err)
		query := u.Query()
		query.Set("jit", "off") // a plan with disabled nodes is costly, and would be compiled for a second
		for name := range strings.FieldsSeq(planner) {
			query.Set(name, "off")
		}
		u.RawQuery = query.Encode()
		pool, err := sql.Open("pgx", u.String())
		require.NoError(t, err)
		pool.SetMaxOpenConns(8)
		t.Cleanup(func() { _ = pool.Close() })
		store := outbox.NewStore(bun.NewDB(pool, pgdialect.New()), &outbox.Config{Source: "test"})

		var mu sync.Mutex
		owners := map[int16]int{}
		var claims errgroup.Group
		for range 8 {
			claims.Go(func() error {
				leases, err := lanedb.Of(store.Handle()).Leases.Claim(t.Context(), "somebody", 0, 5, time.Hour)
				if len(leases) > 5 {
					return fmt.Errorf("%d lanes", len(leases))
				}
				mu.Lock()
				defer mu.Unlock()
				for _, l := range leases {
					owners[l.Lane]++
				}
				return err
			})
		}
		require.NoError(t, claims.Wait())
		require.Len(t, owners, 40)
		var claimed int
		require.NoError(t, f.DB.NewRaw("SELECT count(*) FROM outbox_lane WHERE lease_until > now()").Scan(t.Context(), &claimed))
		require.Equal(t, 40, claimed)
		f.expire()
	}
}
