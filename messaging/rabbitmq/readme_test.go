//go:build nightly

package rabbitmq

import (
	"testing"

	"github.com/oncebox/oncebox/internal/newcomer"
)

// The program of the README runs on RabbitMQ with what the README says about it, and nothing else.
func TestFiveStepsOnRabbitMQ(t *testing.T) {
	t.Parallel()
	p := newcomer.Program{Root: "../..", Adapter: "rabbitmq", URL: server(t).URL}
	p.Try(t)
}
