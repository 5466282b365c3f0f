// Command kills kills the processes of the orders service and the broker under load, and counts what was lost, happened twice or came out of order.
// See https://pkg.go.dev/github.com/oncebox/oncebox/examples/orders/kills.
//
//	go run -C messaging/rabbitmq ./examples/kills -orders 6000 -rounds 20
//
// With ONCEBOX_RABBITMQ_URL it runs on that RabbitMQ, which is not killed. Without it the server of the Debian package is the broker; where apt-get works,
// it is downloaded.
package main

import (
	"context"
	"os"

	"github.com/oncebox/oncebox/examples/orders/kills"
	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/messaging/rabbitmq"
)

// variable has the address of the broker.
const variable = "ONCEBOX_RABBITMQ_URL"

func main() { program().Main() }

func program() *kills.Program {
	return &kills.Program{Kind: rabbitmq.Kind(), Watch: watch, Start: start}
}

// server is a RabbitMQ of this program.
type server struct{ *devenv.RabbitMQServer }

func (s server) Crash(ctx context.Context) error { return s.Restart(ctx) }

func (s server) Close() error { return s.Stop() }

func start(ctx context.Context, _ string) (kills.Broker, error) {
	s, err := devenv.RabbitMQ(ctx, &devenv.Options{Own: true})
	if err != nil {
		return nil, err
	}
	return server{s}, os.Setenv(variable, s.URL)
}
