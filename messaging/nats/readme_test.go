package nats

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/newcomer"
)

// The program of the README runs on NATS with what the README says about it, and nothing else.
func TestFiveStepsOnNATS(t *testing.T) {
	t.Parallel()
	p := newcomer.Program{Root: "../..", Adapter: "nats", URL: serve(t).URL()}
	require.Contains(t, p.Run(t), "\nsold for 42\n")
}
