package pulsartest

import (
	"context"
	"sync"
	"testing"

	"github.com/oncebox/oncebox/internal/devenv"
)

// shared is the server of this test process. Tests of a package cannot hand each other values, so it is a variable.
var shared struct {
	sync.Mutex
	server *devenv.PulsarServer
	err    error
}

// stays has the reason why namespaces stay said once in this test process.
var stays sync.Once

// Server returns the server that the tests of this process share. The first call starts it. A test that kills a server
// starts one of its own.
func Server(t testing.TB) *devenv.PulsarServer {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		// Not t.Context: the server outlives the test that asks first.
		shared.server, shared.err = devenv.Pulsar(context.Background(), &devenv.Options{Volatile: true})
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// Stop stops the shared server if it was started.
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
