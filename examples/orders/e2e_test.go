//go:build unix

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
)

// The service as five processes, on a real PostgreSQL and a real Pulsar, with every request sent three times, while api,
// projectors and consumers are killed. Afterwards what clients were told, what is in the database, what was on the wire
// and what the read model says are compared; see verdict for what may not be.
func TestEndToEnd(t *testing.T) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 18*time.Minute) // a bound for what hangs: a busy machine needs half of it
	defer cancel()
	db, ns := pgtest.Open(t), pulsartest.Open(t)
	ns.Retain(t) // for the reader, who comes when all is acknowledged

	f := openFleet(t, pgtest.URL(t), []string{
		"ONCEBOX_SCHEMA=" + db.Schema,
		"ONCEBOX_PULSAR_URL=" + ns.URL, "ONCEBOX_PULSAR_ADMIN_URL=" + ns.AdminURL, "ONCEBOX_PULSAR_NAMESPACE=" + strings.TrimPrefix(ns.Name, "public/"),
		"ONCEBOX_PULSAR_CONNECT_TIMEOUT=2m", // a broker that has just started answers slowly where many tests run
		// Less than half of the usual, so that takeovers take less of the test's time.
		"ONCEBOX_OUTBOX_LEASE=4s", "ONCEBOX_OUTBOX_RENEW=500ms", "ONCEBOX_OUTBOX_PUBLISH_TIMEOUT=2s",
	})
	require.NoError(t, f.startAll(ctx))

	c := newClient(f.apiAddr)
	defer c.http.CloseIdleConnections()
	l := newLoad(c)
	k := &kills{
		fleet: f, load: l, db: db.DB, owners: map[string]bool{},
		backlog: func(ctx context.Context) (int, error) { return backlogOf(ctx, ns) },
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return l.run(groupCtx) })
	group.Go(func() error { return k.run(groupCtx) })
	require.NoError(t, group.Wait())
	require.NoError(t, awaitDrained(ctx, db, ns))

	e := &evidence{plans: l.plans, results: c.results}
	require.NoError(t, e.readDatabase(ctx, db))
	require.NoError(t, e.readSummaries(ctx, c))
	var err error
	e.wire, err = readWire(ctx, ns, orderTopic)
	require.NoError(t, err)
	require.NoError(t, f.stopAll(ctx), "SIGTERM ends a process cleanly")

	v := e.judge()
	t.Logf("orders e2e orders=%d events=%d keys=%d posts=%d kills_api=%d kills_projector=%d kills_consumer=%d "+
		"lanes_taken_over=%d lost=%d ghosts=%d order_violations=%d effects_twice=%d answers_differ=%d wrong=%d wire_duplicates=%d "+
		"answers_lost_and_replayed=%d connection_errors=%d conflicts=%d unavailable=%d total=%s",
		len(e.orders), len(e.sent), len(c.results), c.tally.posts, f.killed[RoleAPI], f.killed[RoleProjector], f.killed[RoleConsumer],
		k.takeovers, v.lost, v.ghosts, v.disorder, v.twice, v.differing, v.wrong, v.duplicates,
		c.tally.replayed-2*len(c.results), c.tally.refused, c.tally.inFlight, c.tally.unavailable,
		time.Since(began).Round(time.Second))

	require.True(t, v.clean(), strings.Join(v.details, "\n"))
	require.Len(t, e.orders, planOrders)
	for role, n := range f.killed {
		require.Equal(t, killRounds, n, role)
	}
	require.Positive(t, k.takeovers, "lanes of killed projectors went to others")
	for place, role := range fleetPlaces {
		require.Equal(t, role == RoleProjector, k.owners[place], place+" was seen owning lanes")
	}
	// The run was hard enough to prove something, in addition to what each round waits for before it kills.
	require.Positive(t, c.tally.refused, "clients met a killed api")
	require.Positive(t, v.duplicates, "rows of killed projectors were published again")
}
