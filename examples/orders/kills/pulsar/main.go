// Command pulsar kills the processes of the orders service and the Pulsar under load, and counts what was lost, happened twice or came out of order.
//
//	go run ./examples/orders/kills/pulsar -orders 6000 -rounds 20
//
// With ONCEBOX_PULSAR_URL it runs on that Pulsar, which is not killed. Without it a Pulsar is started, which needs Java 17, and Maven the first time.
package main

import (
	"context"
	"errors"
	"os"

	"github.com/oncebox/oncebox/examples/orders/kills"
	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/messaging/pulsar"
)

func main() { program().Main() }

func program() *kills.Program { return &kills.Program{Kind: pulsar.Kind(), Watch: watch, Start: start} }

// server is a Pulsar of this program.
type server struct{ *devenv.PulsarServer }

func (s server) Crash(ctx context.Context) error { return s.Restart(ctx) }

func (s server) Close() error { return s.Stop() }

func start(ctx context.Context, _ string) (kills.Broker, error) {
	s, err := devenv.Pulsar(ctx, &devenv.Options{Own: true})
	if err != nil {
		return nil, err
	}
	return server{s}, errors.Join(os.Setenv("ONCEBOX_PULSAR_URL", s.URL), os.Setenv("ONCEBOX_PULSAR_ADMIN_URL", s.AdminURL))
}
