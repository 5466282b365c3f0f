package adapters

import (
	"sync"
	"sync/atomic"
)

// Gate passes on to the Receive of a receiver that the receiver is paused or closed, or that there is something to look at. Make it with [NewGate].
// A receiver embeds it, and has its Pause and Resume by that.
type Gate struct {
	paused atomic.Bool
	look   chan struct{} // a token: something has changed
	closed chan struct{}
	once   sync.Once
}

// NewGate returns the gate of a receiver that is open.
func NewGate() *Gate { return &Gate{look: make(chan struct{}, 1), closed: make(chan struct{})} }

// Pause implements messaging.Receiver. Messages that the broker has sent already wait in this process.
func (g *Gate) Pause() { g.set(true) }

// Resume implements messaging.Receiver.
func (g *Gate) Resume() { g.set(false) }

func (g *Gate) set(paused bool) {
	g.paused.Store(paused)
	g.Wake()
}

// IsPaused reports whether no message may be received at present.
func (g *Gate) IsPaused() bool { return g.paused.Load() }

// Wake makes Receive look again. It never blocks.
func (g *Gate) Wake() {
	select {
	case g.look <- struct{}{}:
	default: // a token is there already, so Receive will look
	}
}

// Look has a token when Receive has to look again.
func (g *Gate) Look() <-chan struct{} { return g.look }

// Shut closes the gate. It returns false if it was closed before.
func (g *Gate) Shut() (first bool) {
	g.once.Do(func() {
		close(g.closed)
		first = true
	})
	return first
}

// Closed is closed by Shut.
func (g *Gate) Closed() <-chan struct{} { return g.closed }

// IsClosed reports whether the gate was shut.
func (g *Gate) IsClosed() bool {
	select {
	case <-g.closed:
		return true
	default:
		return false
	}
}
