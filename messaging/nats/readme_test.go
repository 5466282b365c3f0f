package nats

import (
	"testing"

	"github.com/oncebox/oncebox/internal/newcomer"
)

// The program of the README runs on NATS with what the README says about it, and nothing else.
func TestFiveStepsOnNATS(t *testing.T) {
	t.Parallel()
	p := newcomer.Program{Root: "../..", Adapter: "nats", URL: serve(t).URL()}
	p.Try(t)
}
