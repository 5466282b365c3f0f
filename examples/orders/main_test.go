package main

import (
	"os"
	"testing"

	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
)

// serviceVariable makes a process of this program one of the service.
const serviceVariable = "ORDERS_TEST_SERVICE"

// TestMain runs the tests, or, in a process that TestEndToEnd has started, the service.
func TestMain(m *testing.M) {
	if os.Getenv(serviceVariable) != "" {
		main()
		return
	}
	pgtest.Main(m, pulsartest.Stop)
}
