// Command kills kills the processes of the orders service and the broker under load, and counts what was lost, happened twice or came out of order.
// See https://pkg.go.dev/github.com/oncebox/oncebox/examples/orders/kills.
//
//	go run -C messaging/kafka ./examples/kills -orders 6000 -rounds 20
//
// With ONCEBOX_KAFKA_URL it runs on that Kafka, which is not killed. Without it a stand-in for Kafka (franz-go's kfake) is the broker. It keeps what it has
// confirmed on the disk.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/oncebox/oncebox/examples/orders/kills"
	"github.com/oncebox/oncebox/examples/orders/shop"
	"github.com/oncebox/oncebox/messaging/kafka"
)

// The variables of a process that is the broker: its directory and its port.
const (
	dirVariable  = "KILLS_KAFKA_DIR"
	portVariable = "KILLS_KAFKA_PORT"
)

func main() {
	switch {
	case kills.Serves():
		shop.Main(kafka.Kind())
	case os.Getenv(dirVariable) != "":
		fmt.Fprintln(os.Stderr, "kills:", serve())
		os.Exit(1)
	case os.Getenv("ONCEBOX_KAFKA_URL") != "":
		os.Exit(kills.Main(kafka.Kind(), nil))
	default:
		os.Exit(kills.Main(kafka.Kind(), start))
	}
}

// serve runs the broker until the process is killed.
func serve() error {
	port, err := strconv.Atoi(os.Getenv(portVariable))
	if err != nil {
		return err
	}
	if _, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.DataDir(os.Getenv(dirVariable)), kfake.SyncWrites()); err != nil {
		return err
	}
	select {}
}

// start starts the broker in a process of its own.
func start(ctx context.Context, dir string) (kills.Broker, error) {
	addr, err := kills.FreeAddr()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if err := os.Setenv("ONCEBOX_KAFKA_URL", addr); err != nil {
		return nil, err
	}
	s := &kills.Server{Addr: addr, Env: []string{dirVariable + "=" + filepath.Join(dir, "kafka"), portVariable + "=" + port}}
	return s, s.Start(ctx)
}
