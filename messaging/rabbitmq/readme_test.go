//go:build nightly

package rabbitmq

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/newcomer"
)

// The program of the README runs on RabbitMQ with what the README says about it, and nothing else.
func TestFiveStepsOnRabbitMQ(t *testing.T) {
	t.Parallel()
	p := newcomer.Program{Root: "../..", Adapter: "rabbitmq", URL: server(t).URL}
	require.Contains(t, p.Run(t), "\nsold for 42\n")
}
