package oncetest

import (
	"sync"

	"github.com/oncebox/oncebox/messaging/memory"
)

// broker is the memory broker of a test. It outlives the service's processes, and counts and fails calls as
// the test wants.
type broker struct {
	*memory.Broker

	moved chan struct{} // has a token after a message was settled or given back

	mu        sync.Mutex
	published int // number of calls of Publish
	failures  []error
}

// refusal counts a call of Publish. It returns the error that [Kit.FailNextPublish] has set for it, nil if
// there is none.
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

// unused returns the number of errors of [Kit.FailNextPublish] that no call has used.
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
