package kills

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/serve"
)

// Fleet is the service as processes: one place for each, in which another process follows a process that was killed.
type Fleet struct {
	// Env is the environment of processes that are started from now on, in addition to that of this process.
	Env []string

	database *url.URL
	leash    *leash

	mu     sync.Mutex
	places map[string]*process // "projector-1" -> the process that is there
	killed map[string]int      // by part
}

// places are the processes of the service, and the part that each does.
func places() map[string]string {
	return map[string]string{
		"api": serve.API, "projector-0": serve.Relay, "projector-1": serve.Relay, "consumer-0": serve.Consumers, "consumer-1": serve.Consumers,
	}
}

// OpenFleet starts no process yet. The processes are those of this program: its main or TestMain calls [Serves] first. None is left after Close, nor
// when this process has vanished.
func OpenFleet(database string, env []string) (*Fleet, error) {
	f := &Fleet{Env: env, places: map[string]*process{}, killed: map[string]int{}}
	var err error
	if f.database, err = url.Parse(database); err != nil {
		return nil, err
	}
	f.leash, err = newLeash()
	return f, err
}

// StartAll starts all places at once, so that they meet each other making tables, topic and subscription.
func (f *Fleet) StartAll(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for name := range places() {
		group.Go(func() error { return f.Start(ctx, name) })
	}
	return group.Wait()
}

// Start fills a place and waits until the process is ready.
func (f *Fleet) Start(ctx context.Context, name string) error {
	// Each place has a name of its own at the database, so that the locks of the database show which place waits.
	database := *f.database
	query := database.Query()
	query.Set("application_name", name)
	database.RawQuery = query.Encode()
	env := append(slices.Clone(f.Env), "ONCEBOX_DATABASE_URL="+database.String())
	p, err := launch(f.leash, name, places()[name], env)
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
func (f *Fleet) kill(name string) (*process, error) {
	p := f.at(name)
	select {
	case <-p.exited:
		return nil, fmt.Errorf("%s had exited by itself: %w\n%s", name, p.err, p.output.tail())
	default:
	}
	p.kill()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.killed[places()[name]]++
	return p, nil
}

func (f *Fleet) at(name string) *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.places[name]
}

// APIAddr is where requests are taken at present; nobody may be there.
func (f *Fleet) APIAddr() string { return f.at("api").output.address() }

// StopAll stops all processes as an orchestrator does.
func (f *Fleet) StopAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // reached only if one does not stop
	defer cancel()
	var all errgroup.Group
	for name := range places() {
		all.Go(func() error { return f.at(name).terminate(ctx) })
	}
	return all.Wait()
}

// Stop stops the process of a place as an orchestrator does.
func (f *Fleet) Stop(ctx context.Context, name string) error { return f.at(name).terminate(ctx) }

// Tail returns the last lines that the process of a place has written.
func (f *Fleet) Tail(name string) string { return f.at(name).output.tail() }

// Close kills what is left. The error shows the data races that processes have found.
func (f *Fleet) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for name, p := range f.places {
		p.kill()
		if tail := p.output.tail(); strings.Contains(tail, "DATA RACE") {
			errs = append(errs, fmt.Errorf("--- %s has a data race\n%s", name, tail))
		}
	}
	return errors.Join(append(errs, f.leash.close())...)
}

// Logs returns the last lines of all processes, for a trial that failed.
func (f *Fleet) Logs() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var text strings.Builder
	for name, p := range f.places {
		fmt.Fprintf(&text, "--- %s\n%s\n", name, p.output.tail())
	}
	return text.String()
}
