//go:build nightly

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/examples/orders/kills"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// TestMain runs the test, or, in a process that the trial has started, a part of it.
func TestMain(m *testing.M) {
	if kills.Serves() {
		main()
		return
	}
	pgtest.Main(m)
}

func TestNothingIsLostUnderKills(t *testing.T) {
	t.Setenv("ONCEBOX_DATABASE_URL", pgtest.URL(t))
	require.Zero(t, program().Run("-orders", "1000", "-rounds", "4"), "it has printed why")
}
