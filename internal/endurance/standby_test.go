//go:build unix && nightly

package endurance

import (
	"database/sql"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// A synchronous standby says nothing for longer than a COMMIT is waited for, and then takes over without what it has not got. What
// clients were told is there.
func TestStalledStandbyTakesOverUnderOrders(t *testing.T) {
	const stall = 100 * time.Second // three times the longest wait for a COMMIT, which is 30 s by default
	primary := pgtest.Start(t, nil)
	standby := primary.Standby(t)
	db := primary.Open(t)
	at, err := url.Parse(db.DSN)
	require.NoError(t, err)
	second, err := url.Parse(standby.URL)
	require.NoError(t, err)
	both := *at
	both.Host += "," + second.Host
	s := openShop(t, both.String()+"&target_session_attrs=read-write")
	stop := s.load()
	s.moreAnswers(2 * ordersPerSecond)

	primary.Stall(t)
	began := time.Now()
	await.True(t, func() bool { return s.unsure.Load() >= clients/2 }, "clients were told that nobody knows")
	require.NoError(t, backoff.Wait(t.Context(), time.Until(began.Add(stall))))
	require.NoError(t, primary.Kill())
	stalled := time.Since(began)
	standby.Promote(t)
	s.moreAnswers(2 * ordersPerSecond)
	stop()

	at.Host = second.Host
	pool, err := sql.Open("pgx", at.String())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	lost, missing := s.verify(&pgtest.DB{DB: bun.NewDB(pool, pgdialect.New())})
	t.Logf("crash kind=standby stalled=%s orders=%d answers_without_rows=%d effects_missing=%d unknown=%d told_unknown=%d",
		stalled.Round(time.Second), s.count.Load(), lost, missing, s.unknown(), s.unsure.Load())
	require.Zero(t, lost, "orders whose clients were told 201")
	require.Zero(t, missing, "messages that were settled")
}
