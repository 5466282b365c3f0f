//go:build nightly

package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/examples/orders/kills"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging/kafka"
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
	os.Args = []string{"kills", "-orders", "1000", "-rounds", "4"}
	require.Zero(t, kills.Main(kafka.Kind(), start), "it has printed why")
}
