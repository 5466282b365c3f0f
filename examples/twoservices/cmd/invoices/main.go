// Command invoices runs the service invoices on Pulsar. docs/two-services.md has its settings.
package main

import (
	"github.com/oncebox/oncebox/examples/twoservices/invoices"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/serve"
)

func main() { serve.Main(invoices.Service(), pulsar.Kind()) }
