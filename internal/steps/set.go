// Package steps knows which steps of a handler are done, so that a handler that runs again does not repeat them. The tables of the results belong to
// the inbox and to idempotency.
package steps

import "sync"

// Set has the steps of one run of a handler, which may run several of them at once. Its zero value is ready.
type Set struct {
	mu     sync.Mutex
	loaded bool
	done   map[string][]byte // results of earlier runs, by name
	used   Names             // in this run
}

// Load reads the results of earlier runs, once: afterwards this run alone adds results.
func (s *Set) Load(read func() (map[string][]byte, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded {
		return nil
	}
	done, err := read()
	if err != nil {
		return err
	}
	s.loaded, s.done = true, done
	return nil
}

// Use reserves a name for this run. It returns false if the name is in use.
func (s *Set) Use(name string) bool { return s.used.Add(name) }

// Release frees a name, so that the step may be tried again in this run.
func (s *Set) Release(name string) { s.used.Remove(name) }

// Done returns the result that an earlier run has stored.
func (s *Set) Done(name string) (result []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	result, ok = s.done[name]
	return result, ok
}

// Run calls a step whose name is in use. If the step fails or panics, its name is released.
func (s *Set) Run(name string, step func() error) (err error) {
	done := false
	defer func() {
		if !done {
			s.Release(name)
		}
	}()
	err = step()
	done = err == nil
	return err
}
