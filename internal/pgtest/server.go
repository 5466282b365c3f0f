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

// shared is the server of this test process. Tests of a package cannot hand each other values, so it is a variable.
var shared struct {
	sync.Mutex
	server *devenv.PostgresServer
	err    error
}

// URL returns the connection string of the server that the tests of this process share. The first call starts it.
func URL(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		// Not t.Context: the server outlives the test that asks first.
		shared.server, shared.err = devenv.Postgres(context.Background(), &devenv.Options{
			Volatile: true, PostgresVariables: []string{"ONCEBOX_DATABASE_URL", "DATABASE_URL"},
		})
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server.URL
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

// Main runs a package's tests, stops the shared server and what else the package names, and exits. It fails a package
// whose tests passed but left goroutines behind.
func Main(m *testing.M, stop ...func() error) { MainIgnoring(m, nil, stop...) }

// MainIgnoring is Main for a package whose dependencies leave goroutines behind that it cannot end.
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

// LeftByToxiproxy is for [MainIgnoring]. A toxic that has closed its connection reads no more; if the server sends something
// then, the goroutines that bring it to the toxic wait for ever.
func LeftByToxiproxy() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"),
	}
}
