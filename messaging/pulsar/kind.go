package pulsar

import (
	"context"
	"time"

	"github.com/oncebox/oncebox/messaging/brokers"
)

// Kind describes Pulsar to programs that are made for several brokers. They read the variables that begin with ONCEBOX_PULSAR_.
func Kind() brokers.Kind {
	return brokers.Kind{Name: "pulsar", Title: "Pulsar", Example: "pulsar://localhost:6650", Connect: fromEnv}
}

// briefly is how long a program that a person waits for gives the admin API to answer.
const briefly = 2 * time.Second

// fromEnv connects with the settings of the variables.
func fromEnv(ctx context.Context, o brokers.Options) (brokers.Connection, error) {
	cfg := Config{Telemetry: o.Telemetry}
	if err := o.Env("ONCEBOX_PULSAR_", &cfg); err != nil {
		return nil, err
	}
	if o.Brief {
		cfg.AdminTimeout, cfg.CloseTimeout = briefly, time.Second
	}
	b, err := Connect(ctx, &cfg)
	if err != nil {
		return nil, err // a *Broker that is nil would be an interface that is not nil
	}
	return b, nil
}
