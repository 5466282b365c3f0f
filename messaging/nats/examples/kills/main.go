// Command kills kills the processes of the orders service and the NATS server under load, and counts what was lost, happened twice or came out of
// order. See https://pkg.go.dev/github.com/oncebox/oncebox/examples/orders/kills.
//
//	go run -C messaging/nats ./examples/kills -orders 6000 -rounds 20
//
// With ONCEBOX_NATS_URL it runs on that NATS server, which is not killed. Without it a server runs in a process of its own.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/oncebox/oncebox/examples/orders/kills"
	"github.com/oncebox/oncebox/messaging/nats"
	"github.com/oncebox/oncebox/messaging/nats/natsserver"
)

// variable has the address of the broker.
const variable = "ONCEBOX_NATS_URL"

// The variables of a process that is the server: its directory and its port.
const (
	dirVariable  = "KILLS_NATS_DIR"
	portVariable = "KILLS_NATS_PORT"
)

func main() {
	if os.Getenv(dirVariable) != "" {
		fmt.Fprintln(os.Stderr, "kills:", serve())
		os.Exit(1)
	}
	program().Main()
}

func program() *kills.Program { return &kills.Program{Kind: nats.Kind(), Watch: watch, Start: start} }

// serve runs the server until the process is killed.
func serve() error {
	port, err := strconv.Atoi(os.Getenv(portVariable))
	if err != nil {
		return err
	}
	if _, err := natsserver.Start(&natsserver.Config{Dir: os.Getenv(dirVariable), Port: port}); err != nil {
		return err
	}
	select {}
}

// start starts the server in a process of its own.
func start(ctx context.Context, dir string) (kills.Broker, error) {
	addr, err := kills.FreeAddr()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if err := os.Setenv(variable, "nats://"+addr); err != nil {
		return nil, err
	}
	s := &kills.Server{Addr: addr, Env: []string{dirVariable + "=" + filepath.Join(dir, "nats"), portVariable + "=" + port}}
	return s, s.Start(ctx)
}
