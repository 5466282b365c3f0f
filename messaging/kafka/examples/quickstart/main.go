// Command quickstart is the quickstart on the Kafka at ONCEBOX_KAFKA_URL.
//
//	ONCEBOX_KAFKA_URL=localhost:9092 go run -C messaging/kafka ./examples/quickstart
package main

import (
	"os"

	"github.com/oncebox/oncebox/examples/quickstart/tour"
	"github.com/oncebox/oncebox/messaging/kafka"
)

func main() { os.Exit(tour.Main(kafka.Kind())) }
