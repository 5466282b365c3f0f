package httpmw_test

import (
	"os"
	"testing"

	"github.com/oncebox/oncebox/internal/pgtest"
)

// TestMain runs the tests, or, in a process that a test has started, a service that will be killed.
func TestMain(m *testing.M) {
	if text := os.Getenv(doomVariable); text != "" {
		os.Exit(beDoomed(text))
	}
	pgtest.Main(m)
}
