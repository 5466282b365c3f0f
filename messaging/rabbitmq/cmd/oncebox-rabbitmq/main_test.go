package main

import (
	"testing"

	"github.com/oncebox/oncebox/internal/commandtest"
)

func TestMain(m *testing.M) { commandtest.Main(m, main, stop...) }

// The address of another system is refused before anything waits for it.
func TestAddressOfAnotherSystem(t *testing.T) {
	p := commandtest.New(t, "oncebox-rabbitmq")
	for url, says := range map[string]string{
		"nats://localhost:4222": "does not look like amqp://user:password@host:5672/vhost", "localhost:9092": "does not look like amqp://",
		"http://localhost:15672": "is that of a web server: give the broker's own address",
	} {
		p.RequireRefused("ONCEBOX_RABBITMQ_URL", url, says)
	}
}
