package pulsartest

import (
	"context"
	"sync"
	"testing"

	"github.com/oncebox/oncebox/internal/devenv"
)

// shared is the broker of this test process. It is global because tests of a package cannot pass values to each other.
var shared struct {
	sync.Mutex
	server *devenv.PulsarServer
	err    error
}

// stays makes the reason why namespaces stay appear once in this process.
var stays sync.Once

// Server returns the broker that all tests of this process share. The first call starts it. A test that kills a broker
// has to start one of its own.
func Server(t testing.TB) *devenv.PulsarServer {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		// Not the context of the test, because the broker outlives it.
		shared.server, shared.err = devenv.Pulsar(context.Background(), &devenv.Options{Volatile: true})
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// Stop stops the shared broker, if it was started.
func Stop() error {
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		return nil
	}
	err := shared.server.Stop()
	shared.server = nil
	return err
}
