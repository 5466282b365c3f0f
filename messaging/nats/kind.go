package nats

import "github.com/oncebox/oncebox/messaging/brokers"

// title is what the broker is called.
const title = "NATS"

// Kind describes NATS to programs that are made for several brokers. They read the variables that begin with ONCEBOX_NATS_.
func Kind() brokers.Kind {
	set := func(c *Config, o brokers.Options) { c.Telemetry = o.Telemetry }
	return brokers.Kind{Name: "nats", Title: title, Example: "nats://localhost:4222", Connect: brokers.Connector("ONCEBOX_NATS_", set, Connect)}
}
