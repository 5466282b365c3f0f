//go:build unix

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/examples/orders/kills"
	"github.com/oncebox/oncebox/examples/orders/shop"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
)

// pulsarOf returns the variables of processes on the namespace.
func pulsarOf(ns *pulsartest.Namespace) []string {
	return []string{
		"ONCEBOX_PULSAR_URL=" + ns.URL, "ONCEBOX_PULSAR_ADMIN_URL=" + ns.AdminURL, "ONCEBOX_PULSAR_NAMESPACE=" + strings.TrimPrefix(ns.Name, "public/"),
		"ONCEBOX_PULSAR_CONNECT_TIMEOUT=2m", // a broker that has just started answers slowly where many tests run
	}
}

// The service as five processes, on a real PostgreSQL and a real Pulsar, with every request sent three times, while api,
// projectors and consumers are killed; see package kills. The wire is read with a client that knows nothing of ours.
func TestEndToEnd(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 18*time.Minute) // a bound for what hangs: a busy machine needs half of it
	defer cancel()
	db, ns := pgtest.Open(t), pulsartest.Open(t)
	ns.Retain(t) // for the reader, who comes when all is acknowledged
	trial := &kills.Trial{
		Name: "pulsar", Database: pgtest.URL(t), DB: db.DB, Env: append(pulsarOf(ns), "ONCEBOX_SCHEMA="+db.Schema),
		Orders: nightly.N(600, 2000), Rounds: nightly.N(2, 5),
		Backlog: func(ctx context.Context) (int, error) { return backlogOf(ctx, ns) },
		Wire:    func(ctx context.Context) ([]kills.Fact, error) { return readWire(ctx, ns) },
	}
	r, err := trial.Run(ctx)
	require.NoError(t, err)
	t.Log(r)

	require.NoError(t, r.Err())
	require.Equal(t, trial.Orders, r.Orders)
	require.Equal(t, map[shop.Role]int{shop.RoleAPI: trial.Rounds, shop.RoleProjector: trial.Rounds, shop.RoleConsumer: trial.Rounds}, r.Killed)
	require.Positive(t, r.Takeovers, "lanes of killed projectors went to others")
	require.Equal(t, map[string]bool{"projector-0": true, "projector-1": true}, r.Owners, "the places that were seen owning lanes")
	// The run was hard enough to prove something, in addition to what each round waits for before it kills.
	require.Positive(t, r.Refused, "clients met a killed api")
	require.Positive(t, r.Duplicates, "rows of killed projectors were published again")
}
