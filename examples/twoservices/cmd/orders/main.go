// Command orders runs the service orders on Pulsar. docs/two-services.md has its settings.
package main

import (
	"github.com/oncebox/oncebox/examples/twoservices/orders"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/serve"
)

func main() { serve.Main(orders.Service(), pulsar.Kind()) }
