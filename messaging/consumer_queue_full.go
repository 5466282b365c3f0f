package messaging

import (
	"slices"
	"sync"
)

// blocked counts the messages that wait because an earlier message of their key pauses before its next try, and these messages themselves. Each takes
// a place in the consumer's queue: without a limit one failing key could fill the queue, and the consumer would receive nothing for other keys. The
// limit is a quarter of the queue.
//
// The consumer's mutex guards its fields.
type blocked struct {
	limit  int
	size   int
	pauses map[string][]*pausing // by key: a single pause, except for messages without a key
}

// pausing is a message that waits before its next try.
type pausing struct {
	key    string
	behind int           // how many messages it blocks: itself and the messages behind it
	end    chan struct{} // closed to end the pause early, because too many messages are blocked
	over   func()        // closes end
}

func newBlocked(queue int) blocked {
	return blocked{limit: max(queue/4, 1), pauses: map[string][]*pausing{}}
}

// enter records that a message pauses, and blocks the messages behind it.
func (b *blocked) enter(key string, waiting int) *pausing {
	end := make(chan struct{})
	p := &pausing{key: key, behind: 1 + waiting, end: end, over: sync.OnceFunc(func() { close(end) })}
	b.pauses[key] = append(b.pauses[key], p)
	b.grow(p.behind)
	return p
}

// join records a message that arrives behind a pausing message of its key.
func (b *blocked) join(key string) {
	for _, p := range b.pauses[key] {
		p.behind++
		b.grow(1)
	}
}

// leave records that a pause has ended.
func (b *blocked) leave(p *pausing) {
	b.pauses[p.key] = slices.DeleteFunc(b.pauses[p.key], func(o *pausing) bool { return o == p })
	if len(b.pauses[p.key]) == 0 {
		delete(b.pauses, p.key)
	}
	b.size -= p.behind
}

// grow ends all pauses if too many messages are blocked. These messages are tried at once, and [Message.QueueFull] shows the handler that it should
// keep the message elsewhere, as package inbox does.
func (b *blocked) grow(n int) {
	b.size += n
	if b.size <= b.limit {
		return
	}
	for _, all := range b.pauses {
		for _, p := range all {
			p.over()
		}
	}
}

// QueueFull reports whether the messages that wait for another try, including this one and the messages behind it in its key, take so much
// of the consumer's queue that messages of other keys are kept out. A handler that can keep a message elsewhere should do so then, instead
// of asking for another try: package inbox parks it. False for a message that has no consumer.
func (m *Message) QueueFull() bool {
	c := m.consumer
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blocked.size+1+len(c.keys[m.lineup]) > c.blocked.limit
}
