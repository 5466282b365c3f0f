package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/telemetry"
)

// checkBroker refuses several processes without Pulsar: each would have a broker in its own memory, and they would not
// get each other's messages.
func checkBroker(role Role, cfg config.Config) error {
	if cfg.PulsarURL == "" && role != RoleAll {
		return fmt.Errorf("role %s needs Pulsar: set ONCEBOX_PULSAR_URL (or PULSAR_URL), for example pulsar://localhost:6650, "+
			"or run everything in one process with -role all", role)
	}
	return nil
}

// openBroker connects to Pulsar, which may start later. Without an address it makes a broker in memory.
func openBroker(ctx context.Context, cfg config.Config) (oncebox.Broker, error) {
	if cfg.PulsarURL == "" {
		slog.WarnContext(ctx, "orders: no ONCEBOX_PULSAR_URL, using the broker in memory: what is on its way when this process ends is not delivered")
		return memory.New(&memory.Config{Retain: 1000, Telemetry: telemetry.Config{MeterProvider: cfg.Telemetry.MeterProvider}}), nil
	}
	var pc pulsar.Config
	if err := config.Env("ONCEBOX_PULSAR_", &pc); err != nil {
		return nil, err
	}
	if err := pc.Validate(); err != nil {
		return nil, err
	}
	pc.Telemetry.MeterProvider = cfg.Telemetry.MeterProvider
	broker, err := pulsar.Connect(ctx, &pc)
	if err != nil {
		return nil, err // a *pulsar.Broker that is nil would be an interface that is not nil
	}
	return broker, nil
}
