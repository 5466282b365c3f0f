//go:build unix && nightly

package endurance

import (
	"os"
	"testing"

	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
)

// TestMain runs the tests, or, in a process that a test has started, a consumer or a projector.
func TestMain(m *testing.M) {
	if text := os.Getenv(taskVariable); text != "" {
		os.Exit(beProcess(text))
	}
	pgtest.Main(m, pulsartest.Stop)
}
