// Command quickstart is the quickstart on NATS. It needs nothing but Go: without ONCEBOX_NATS_URL it runs a NATS server within this process.
//
//	go run -C messaging/nats ./examples/quickstart
package main

import (
	"fmt"
	"os"

	"github.com/oncebox/oncebox/examples/quickstart/tour"
	"github.com/oncebox/oncebox/messaging/nats"
	"github.com/oncebox/oncebox/messaging/nats/natsserver"
)

func main() { os.Exit(run()) }

func run() int {
	const variable = "ONCEBOX_NATS_URL"
	if os.Getenv(variable) != "" {
		return tour.Main(nats.Kind())
	}
	dir, err := os.MkdirTemp("", "oncebox-quickstart-")
	if err != nil {
		return failed(err)
	}
	defer os.RemoveAll(dir)
	server, err := natsserver.Start(&natsserver.Config{Dir: dir})
	if err != nil {
		return failed(err)
	}
	defer server.Stop()
	if err := os.Setenv(variable, server.URL()); err != nil {
		return failed(err)
	}
	fmt.Fprintln(os.Stdout, "A NATS server runs in this process, with JetStream, at", server.URL())
	return tour.Main(nats.Kind())
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, "quickstart:", err)
	return 1
}
