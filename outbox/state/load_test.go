package state_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/outboxtest"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/outbox/state"
)

// The loads of tenants are counted from the latest rows of each lane, and estimated if a lane has more.
func TestLoadsAreThoseOfTheLatestRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	require.NoError(t, f.Upkeep().EnsurePartitions(t.Context()))
	yesterday := time.Now().UTC().AddDate(0, 0, -1).Format("20060102")
	f.Child(yesterday[:4] + "-" + yesterday[4:6] + "-" + yesterday[6:])
	const insert = `INSERT INTO outbox (id, occurred_at, created_at, lane, tenant_id, topic, event_type, source, payload)
		SELECT gen_random_uuid(), now(), clock_timestamp() - %s, i %% 64, %s, %s, 'order.placed', 'test', '' FROM generate_series(1, ?) i`
	loads := func(since time.Duration, topics ...string) map[string]float64 {
		t.Helper()
		list, err := f.State().Loads(t.Context(), time.Now().Add(-since), topics...)
		require.NoError(t, err)
		of := map[string]float64{}
		for n, l := range list {
			of[l.Tenant+" "+l.Topic+" "+l.Type] = l.Events
			if n > 0 {
				require.GreaterOrEqual(t, list[n-1].Events, l.Events, "the largest is first")
			}
		}
		return of
	}
	require.Empty(t, loads(time.Hour))

	f.Exec(fmt.Sprintf(insert, "interval '1 day'", "'old'", "'order'"), 20_000)
	f.Exec(fmt.Sprintf(insert, "interval '30 minutes'", "'acme'", "'order'"), 640)
	f.Exec(fmt.Sprintf(insert, "interval '30 minutes'", "'acme'", "'parcel'"), 320)
	require.Equal(t, map[string]float64{"acme order order.placed": 640, "acme parcel order.placed": 320}, loads(time.Hour))
	require.Equal(t, map[string]float64{"acme parcel order.placed": 320}, loads(time.Hour, "parcel"))
	require.Empty(t, loads(10*time.Minute))

	// 200 in each lane within 100 s, of which 100 are read: they are of the last 50 s, and stand for the time before too. A machine that stands still
	// between writing and reading takes the rate for lower, so it does both again.
	var flood map[string]float64
	for late := time.Hour; late > 10*time.Second; {
		f.Exec("DELETE FROM outbox WHERE tenant_id IN ('globex', 'initech')")
		began := time.Now()
		f.Exec(fmt.Sprintf(insert, "interval '100 s' * (12800 - i) / 12800", "CASE WHEN i / 64 % 10 = 0 THEN 'globex' ELSE 'initech' END", "'order'"), 12_800)
		flood = loads(100 * time.Second)
		late = time.Since(began)
	}
	require.InDelta(t, 12_800, flood["initech order order.placed"]+flood["globex order order.placed"], 4000)
	require.InDelta(t, 9, flood["initech order order.placed"]/flood["globex order order.placed"], 1)

	// The statistics know nothing of the flood yet.
	statement, without := state.LoadsStatement()
	var plan string
	require.NoError(t, f.Handle().Without(t.Context(), without, func(ctx context.Context, tx bun.Tx) (err error) {
		rows := f.Handle().AdHoc().Query(ctx, tx, "EXPLAIN "+statement, time.Now().Add(-time.Second), []string{})
		lines, err := pgsql.Collect(rows, func(scan pgsql.Scan, line *string) error { return scan(line) })
		plan = strings.Join(lines, "\n")
		return err
	}))
	require.Contains(t, plan, "Index Scan Backward using "+outboxtest.Today("outbox"))
	require.NotContains(t, plan, "Scan on outbox_2")
	require.NotContains(t, plan, "Scan on outbox_default")
	require.Equal(t, 1, strings.Count(plan, "->  Sort"), "of the result alone")
	require.NotContains(t, plan, "outbox_"+yesterday, "rows of other days are not looked at")
}
