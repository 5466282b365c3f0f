// Command quickstart is the quickstart on the RabbitMQ at ONCEBOX_RABBITMQ_URL.
//
//	ONCEBOX_RABBITMQ_URL=amqp://guest:guest@localhost:5672 go run -C messaging/rabbitmq ./examples/quickstart
package main

import (
	"os"

	"github.com/oncebox/oncebox/examples/quickstart/tour"
	"github.com/oncebox/oncebox/messaging/rabbitmq"
)

func main() { os.Exit(tour.Main(rabbitmq.Kind())) }
