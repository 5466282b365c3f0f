package pulsar

import (
	"time"

	"github.com/oncebox/oncebox/messaging/brokers"
)

// briefly is how long a program that a person waits for gives the admin API to answer.
const briefly = 2 * time.Second

// title is what the broker is called.
const title = "Pulsar"

// Kind describes Pulsar to programs that are made for several brokers. They read the variables that begin with ONCEBOX_PULSAR_.
func Kind() brokers.Kind {
	set := func(c *Config, o brokers.Options) {
		c.Telemetry = o.Telemetry
		if o.Brief {
			c.AdminTimeout, c.CloseTimeout = briefly, time.Second
		}
	}
	return brokers.Kind{Name: "pulsar", Title: title, Example: "pulsar://localhost:6650", Connect: brokers.Connector("ONCEBOX_PULSAR_", set, Connect)}
}
