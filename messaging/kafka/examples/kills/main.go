// Command kills kills the processes of the orders service and the broker under load, and counts what was lost, happened twice or came out of order.
// See https://pkg.go.dev/github.com/oncebox/oncebox/examples/orders/kills.
//
//	go run -C messaging/kafka ./examples/kills -orders 6000 -rounds 20
//
// With ONCEBOX_KAFKA_URL it runs on that Kafka, which is not killed. Without it a Kafka is started, from libraries that Maven downloads once.
package main

import (
	"context"
	"os"

	"github.com/oncebox/oncebox/examples/orders/kills"
	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/messaging/kafka"
)

// variable has the address of the broker.
const variable = "ONCEBOX_KAFKA_URL"

func main() { program().Main() }

func program() *kills.Program { return &kills.Program{Kind: kafka.Kind(), Watch: watch, Start: start} }

// server is a Kafka that is killed and started again on its data.
type server struct{ *devenv.KafkaServer }

func (s server) Crash(ctx context.Context) error { return s.Restart(ctx) }

func (s server) Close() error { return s.Stop() }

func start(ctx context.Context, _ string) (kills.Broker, error) {
	s, err := devenv.Kafka(ctx, &devenv.Options{Own: true})
	if err != nil {
		return nil, err
	}
	return server{s}, os.Setenv(variable, s.URL)
}
