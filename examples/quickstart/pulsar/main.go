// Command pulsar is the quickstart on the Pulsar at ONCEBOX_PULSAR_URL.
package main

import (
	"os"

	"github.com/oncebox/oncebox/examples/quickstart/tour"
	"github.com/oncebox/oncebox/messaging/pulsar"
)

func main() { os.Exit(tour.Main(pulsar.Kind())) }
