package main

import (
	"testing"

	"github.com/oncebox/oncebox/examples/orders/kills"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
)

// TestMain runs the tests, or, in a process that a test has started, the service.
func TestMain(m *testing.M) {
	if kills.Serves() {
		main()
		return
	}
	pgtest.Main(m, pulsartest.Stop)
}
