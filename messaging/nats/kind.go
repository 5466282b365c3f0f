package nats

import (
	"context"

	"github.com/oncebox/oncebox/messaging/brokers"
)

// Kind describes NATS to programs that are made for several brokers. They read the variables that begin with ONCEBOX_NATS_.
func Kind() brokers.Kind {
	return brokers.Kind{Name: "nats", Title: "NATS", Example: "nats://localhost:4222", Connect: fromEnv}
}

// fromEnv connects with the settings of the variables.
func fromEnv(ctx context.Context, o brokers.Options) (brokers.Connection, error) {
	cfg := Config{Telemetry: o.Telemetry}
	if err := o.Env("ONCEBOX_NATS_", &cfg); err != nil {
		return nil, err
	}
	b, err := Connect(ctx, &cfg)
	if err != nil {
		return nil, err // a *Broker that is nil would be an interface that is not nil
	}
	return b, nil
}
