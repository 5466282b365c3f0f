package steps

import "sync"

// Names is a set of names for use by several goroutines. Its zero value is empty.
type Names struct {
	mu    sync.Mutex
	names map[string]struct{}
}

// Add returns false if the name was there.
func (n *Names) Add(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, there := n.names[name]; there {
		return false
	}
	if n.names == nil {
		n.names = map[string]struct{}{}
	}
	n.names[name] = struct{}{}
	return true
}

// Remove does nothing if the name is not there.
func (n *Names) Remove(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.names, name)
}

// Has reports whether the name is there.
func (n *Names) Has(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, there := n.names[name]
	return there
}

// IsEmpty reports whether there are no names.
func (n *Names) IsEmpty() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.names) == 0
}
