package rabbitmq

import (
	"context"
	"time"

	"github.com/oncebox/oncebox/messaging/brokers"
)

// Kind describes RabbitMQ to programs that are made for several brokers. They read the variables that begin with ONCEBOX_RABBITMQ_.
func Kind() brokers.Kind {
	return brokers.Kind{
		Name: "rabbitmq", Title: "RabbitMQ", Example: "amqp://guest:guest@localhost:5672",
		Connect: func(ctx context.Context, o brokers.Options) (brokers.Connection, error) {
			cfg := Config{Telemetry: o.Telemetry}
			if err := o.Env("ONCEBOX_RABBITMQ_", &cfg); err != nil {
				return nil, err
			}
			if o.Brief {
				cfg.CloseTimeout = time.Second
			}
			b, err := Connect(ctx, &cfg)
			if err != nil {
				return nil, err // a *Broker that is nil would be an interface that is not nil
			}
			return b, nil
		},
	}
}
