package rabbitmq

import (
	"time"

	"github.com/oncebox/oncebox/messaging/brokers"
)

// Kind describes RabbitMQ to programs that are made for several brokers. They read the variables that begin with ONCEBOX_RABBITMQ_.
func Kind() brokers.Kind {
	set := func(c *Config, o brokers.Options) {
		c.Telemetry = o.Telemetry
		if o.Brief {
			c.CloseTimeout = time.Second
		}
	}
	return brokers.Kind{
		Name: "rabbitmq", Title: "RabbitMQ", Example: "amqp://localhost:5672", Connect: brokers.Connector("ONCEBOX_RABBITMQ_", set, Connect),
	}
}
