//go:build unix

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/examples/orders/kills"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/serve"
)

// TestMain runs the test, or, in a process that the trial has started, the service.
func TestMain(m *testing.M) {
	if kills.Serves() {
		main()
	}
	pgtest.Main(m, pulsartest.Stop)
}

// The service as five processes, on a real PostgreSQL and a real Pulsar, with every request sent three times, while api, projectors and consumers are
// killed; see package kills.
func TestNothingIsLostUnderKills(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 18*time.Minute) // a bound for what hangs: a busy machine needs half of it
	defer cancel()
	db, ns := pgtest.Open(t), pulsartest.Open(t)
	for name, value := range map[string]string{
		"URL": ns.URL, "ADMIN_URL": ns.AdminURL, "NAMESPACE": strings.TrimPrefix(ns.Name, "public/"),
		"CONNECT_TIMEOUT": "2m", // a broker that has just started answers slowly where many tests run
	} {
		t.Setenv("ONCEBOX_PULSAR_"+name, value)
	}
	wire, err := watch(ctx)
	require.NoError(t, err)
	trial := &kills.Trial{
		Name: "pulsar", Database: db.DSN, DB: db.DB,
		Orders: nightly.N(600, 2000), Rounds: nightly.N(2, 5), Wire: wire,
	}
	r, err := trial.Run(ctx)
	require.NoError(t, err)
	t.Log(r)

	require.NoError(t, r.Err())
	require.Equal(t, trial.Orders, r.Orders)
	require.Equal(t, map[string]int{serve.API: trial.Rounds, serve.Relay: trial.Rounds, serve.Consumers: trial.Rounds}, r.Killed)
	require.Positive(t, r.Takeovers, "lanes of killed projectors went to others")
	require.Equal(t, map[string]bool{"projector-0": true, "projector-1": true}, r.Owners, "the places that were seen owning lanes")
	// The run was hard enough to prove something, in addition to what each round waits for before it kills.
	require.Positive(t, r.Refused, "clients met a killed api")
	require.Positive(t, r.Duplicates, "rows of killed projectors were published again")
}
