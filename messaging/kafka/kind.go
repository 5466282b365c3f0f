package kafka

import "github.com/oncebox/oncebox/messaging/brokers"

// title is what the broker is called.
const title = "Kafka"

// Title returns what operators call the broker, see messaging.Titled.
func (*Broker) Title() string { return title }

// Kind describes Kafka to programs that are made for several brokers. They read the variables that begin with ONCEBOX_KAFKA_.
func Kind() brokers.Kind {
	set := func(c *Config, o brokers.Options) { c.Telemetry = o.Telemetry }
	return brokers.Kind{Name: "kafka", Title: title, Example: "localhost:9092", Connect: brokers.Connector("ONCEBOX_KAFKA_", set, Connect)}
}
