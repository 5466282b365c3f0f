package oncetest

import (
	"sync"

	"github.com/oncebox/oncebox/messaging/memory"
)

// broker is the memory broker, which outlives the processes of the service, and what the test wants of it.
type broker struct {
	*memory.Broker

	moved chan struct{} // a token: a message was settled or given back

	mu        sync.Mutex
	published int // calls of Publish
	failures  []error
}

// refusal counts a call of Publish and returns the error that [Kit.FailNextPublish] has for it, nil if there is none.
func (b *broker) refusal() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.published++
	if len(b.failures) == 0 {
		return nil
	}
	err := b.failures[0]
	b.failures = b.failures[1:]
	return err
}

// unused is how many errors of [Kit.FailNextPublish] are left.
func (b *broker) unused() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.failures)
}

func (b *broker) calls() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.published
}

func (b *broker) tell() {
	select {
	case b.moved <- struct{}{}:
	default:
	}
}
