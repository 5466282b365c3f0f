package brokers_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// clients are the modules of the clients, by broker.
func clients() map[string]string {
	return map[string]string{
		"pulsar": "github.com/apache/pulsar-client-go", "nats": "github.com/nats-io", "kafka": "github.com/twmb/franz-go",
		"rabbitmq": "github.com/rabbitmq/amqp091-go",
	}
}

// A program on one broker is built with its client and with no other one.
func TestProgramsHaveOneClient(t *testing.T) {
	t.Parallel()
	for broker, programs := range map[string][]string{
		"pulsar":   {"-C", "../..", "./cmd/oncebox", "./examples/orders", "./examples/quickstart/pulsar", "./examples/orders/kills/pulsar"},
		"nats":     {"-C", "../nats", "./cmd/oncebox-nats", "./examples/orders", "./examples/quickstart", "./examples/kills"},
		"kafka":    {"-C", "../kafka", "./cmd/oncebox-kafka", "./examples/orders", "./examples/quickstart", "./examples/kills"},
		"rabbitmq": {"-C", "../rabbitmq", "./cmd/oncebox-rabbitmq", "./examples/orders", "./examples/quickstart", "./examples/kills"},
		"":         {"-C", "../..", "./examples/quickstart/memory", "./examples/fivesteps", "./config", "./serve", "."},
	} {
		t.Run(broker, func(t *testing.T) {
			t.Parallel()
			for _, program := range programs[2:] {
				out, err := exec.CommandContext(t.Context(), "go", "list", programs[0]+"="+programs[1], "-deps", program).CombinedOutput()
				require.NoError(t, err, "%s", out)
				for name, client := range clients() {
					has := strings.Contains(string(out), "\n"+client)
					require.Equal(t, name == broker, has, "%s in %s: the client of %s", program, programs[1], name)
				}
			}
		})
	}
}
