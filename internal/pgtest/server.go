package pgtest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/internal/leaktest"
)

// shared is the server of this test process. It is global because tests of a package cannot pass values to each other.
var shared struct {
	sync.Mutex
	server *devenv.PostgresServer
	err    error
}

// URL returns the connection string of the server that all tests of this process share. The first call starts it.
func URL(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		// Not the context of the test, because the server outlives it.
		shared.server, shared.err = devenv.Postgres(context.Background(), &devenv.Options{
			Volatile: true, PostgresVariables: []string{"ONCEBOX_DATABASE_URL", "DATABASE_URL"},
		})
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server.URL
}

// Stop stops the shared server, if it was started.
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

// Main runs the tests of a package, stops the shared server and everything in stop, and exits. It fails a package whose
// tests have left goroutines behind.
func Main(m *testing.M, stop ...func() error) { MainIgnoring(m, nil, stop...) }

// MainIgnoring is Main for a package whose dependencies leave goroutines behind.
func MainIgnoring(m *testing.M, leaks []goleak.Option, stop ...func() error) {
	code := m.Run()
	for _, stop := range append(stop, Stop) {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	leaktest.Exit(code, leaks...)
}
