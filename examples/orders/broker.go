package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/messaging/pulsar"
)

// apiConnectTimeout is how long a process that only takes orders tries to reach Pulsar: it does not need it.
const apiConnectTimeout = 5 * time.Second

// checkBroker refuses several processes without Pulsar: each would have a broker of its own in its memory, and none would
// hear of the others.
func checkBroker(role Role, cfg config.Config) error {
	if cfg.PulsarURL == "" && role != RoleAll {
		return fmt.Errorf("role %s needs Pulsar: set ONCEBOX_PULSAR_URL (or PULSAR_URL), for example pulsar://localhost:6650, "+
			"or run everything in one process with -role all", role)
	}
	return nil
}

// openBroker connects to Pulsar, or makes a broker in memory if there is no address of it.
func openBroker(ctx context.Context, role Role, cfg config.Config) (oncebox.Broker, error) {
	if cfg.PulsarURL == "" {
		slog.WarnContext(ctx, "orders: no ONCEBOX_PULSAR_URL, using the broker in memory: what is on its way when this process ends is not delivered")
		return memory.New(&memory.Config{Retain: 1000, MeterProvider: cfg.MeterProvider}), nil
	}
	var pc pulsar.Config
	if err := config.Env("ONCEBOX_PULSAR_", &pc); err != nil {
		return nil, err
	}
	if err := pc.Validate(); err != nil {
		return nil, err
	}
	pc.MeterProvider = cfg.MeterProvider
	if role == RoleAPI && pc.ConnectTimeout == 0 {
		pc.ConnectTimeout = apiConnectTimeout
	}
	broker, err := pulsar.Connect(ctx, &pc)
	if err == nil {
		return broker, nil
	}
	if role == RoleAPI && ctx.Err() == nil {
		slog.WarnContext(ctx, "orders: Pulsar does not answer, orders are taken and announced later", "url", cfg.PulsarURL, "error", err)
		return nil, nil //nolint:nilnil // no broker is what an api can do without
	}
	return nil, err
}
