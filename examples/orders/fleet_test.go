//go:build unix

package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// fleet is the service as processes: one place for each, in which another process follows a process that was killed.
type fleet struct {
	database *url.URL
	env      []string
	leash    *leash

	mu     sync.Mutex
	places map[string]*process // "projector-1" -> the process that is there
	killed map[Role]int
}

var fleetPlaces = map[string]Role{
	"api": RoleAPI, "projector-0": RoleProjector, "projector-1": RoleProjector, "consumer-0": RoleConsumer, "consumer-1": RoleConsumer,
}

// openFleet starts no process yet. Whatever happens, no process is left when the test has ended.
func openFleet(t *testing.T, database string, env []string) *fleet {
	t.Helper()
	f := &fleet{env: env, places: map[string]*process{}, killed: map[Role]int{}}
	var err error
	f.database, err = url.Parse(database)
	require.NoError(t, err)
	f.leash, err = newLeash()
	require.NoError(t, err)
	t.Cleanup(func() { f.close(t) })
	return f
}

// startAll starts all places at once, so that they meet each other making tables, topic and subscription.
func (f *fleet) startAll(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for name := range fleetPlaces {
		group.Go(func() error { return f.start(ctx, name) })
	}
	return group.Wait()
}

// start fills a place and waits until the process is ready.
func (f *fleet) start(ctx context.Context, name string) error {
	// Each place has a name of its own at the database, so that the test can tell which place waits for what.
	database := *f.database
	query := database.Query()
	query.Set("application_name", name)
	database.RawQuery = query.Encode()
	env := append(slices.Clone(f.env), "ONCEBOX_DATABASE_URL="+database.String())
	p, err := launch(f.leash, name, fleetPlaces[name], env)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.places[name] = p
	f.mu.Unlock()
	if err := p.awaitReady(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, p.output.tail())
	}
	return nil
}

// kill ends the process of a place with SIGKILL and returns it. A process that had ended by itself is an error.
func (f *fleet) kill(name string) (*process, error) {
	p := f.at(name)
	select {
	case <-p.exited:
		return nil, fmt.Errorf("%s had exited by itself: %w\n%s", name, p.err, p.output.tail())
	default:
	}
	p.kill()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.killed[fleetPlaces[name]]++
	return p, nil
}

func (f *fleet) at(name string) *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.places[name]
}

// apiAddr is where requests are taken at present; nobody may be there.
func (f *fleet) apiAddr() string { return f.at("api").output.address() }

// stopAll stops all processes as an orchestrator does.
func (f *fleet) stopAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // reached only if one does not stop
	defer cancel()
	var all errgroup.Group
	for name := range fleetPlaces {
		all.Go(func() error { return f.at(name).terminate(ctx) })
	}
	return all.Wait()
}

// close kills what is left, and shows the ends of the logs of a test that failed.
func (f *fleet) close(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, p := range f.places {
		p.kill()
		if t.Failed() {
			t.Logf("--- %s\n%s", name, p.output.tail())
		}
		if tail := p.output.tail(); strings.Contains(tail, "DATA RACE") {
			t.Errorf("--- %s has a data race\n%s", name, tail)
		}
	}
	if err := f.leash.close(); err != nil {
		t.Errorf("end the processes of the test: %v", err)
	}
}
