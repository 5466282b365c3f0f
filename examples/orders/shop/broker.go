package shop

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/messaging/brokers"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/telemetry"
)

// others says which program is the service for another broker.
func others(name string) string {
	if name == "pulsar" {
		return "go run ./examples/orders"
	}
	return "go run -C messaging/" + name + " ./examples/orders"
}

// needsBroker refuses several processes without a broker between them: each would have a broker in its own memory, and they would not
// get each other's messages.
func needsBroker(role Role, c *brokers.Choice) error {
	k := &c.Kinds[0]
	return fmt.Errorf("role %s needs a broker: set %s, for example to %s, or run everything in one process with -role all", role, c.Variables(), k.Example)
}

// openBroker connects to the broker, which may start later. Without one it makes a broker in memory.
func openBroker(ctx context.Context, kind *brokers.Kind, cfg config.Config) (oncebox.Broker, error) {
	metrics := telemetry.Config{MeterProvider: cfg.Telemetry.MeterProvider}
	if kind == nil {
		slog.WarnContext(ctx, "orders: no broker is set, using the broker in memory: what is on its way when this process ends is not delivered")
		return memory.New(&memory.Config{Retain: 1000, Telemetry: metrics}), nil
	}
	return kind.Connect(ctx, brokers.Options{Env: config.Env, Telemetry: metrics})
}
