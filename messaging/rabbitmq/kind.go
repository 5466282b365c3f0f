package rabbitmq

import (
	"time"

	"github.com/oncebox/oncebox/messaging/brokers"
)

// title is what the broker is called.
const title = "RabbitMQ"

// Title returns what operators call the broker, see messaging.Titled.
func (*Broker) Title() string { return title }

// Kind describes RabbitMQ to programs that are made for several brokers. They read the variables that begin with ONCEBOX_RABBITMQ_.
func Kind() brokers.Kind {
	set := func(c *Config, o brokers.Options) {
		c.Telemetry = o.Telemetry
		if o.Brief {
			c.CloseTimeout = time.Second
		}
	}
	return brokers.Kind{
		Name: "rabbitmq", Title: title, Example: "amqp://localhost:5672", Connect: brokers.Connector("ONCEBOX_RABBITMQ_", set, Connect),
	}
}
