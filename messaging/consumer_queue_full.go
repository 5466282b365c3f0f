package messaging

// blocked counts the messages that cannot go on because their key pauses. Each of them takes a place in the queue; without a
// limit a single failing key would fill it, and the consumer would receive nothing for the others.
//
// Its state is guarded by the consumer's mutex.
type blocked struct {
	limit  int
	size   int
	pauses map[string]*pausing // by key
	loners map[*pausing]struct{}
}

// pausing is a message that waits before its next try.
type pausing struct {
	key    string
	behind int           // what it blocks: itself and the messages behind it
	end    chan struct{} // closed when too many messages are blocked to go on waiting
}

func newBlocked(queue int) blocked {
	return blocked{limit: max(queue/4, 1), pauses: map[string]*pausing{}, loners: map[*pausing]struct{}{}}
}

// enter notes that a message pauses, with those behind it.
func (b *blocked) enter(key string, waiting int) *pausing {
	p := &pausing{key: key, behind: 1 + waiting, end: make(chan struct{})}
	if key == "" {
		b.loners[p] = struct{}{}
	} else {
		b.pauses[key] = p
	}
	b.grow(p.behind)
	return p
}

// join notes that another message waits behind a message that pauses, if one does.
func (b *blocked) join(key string) {
	if p := b.pauses[key]; p != nil {
		p.behind++
		b.grow(1)
	}
}

// leave notes that the pause is over.
func (b *blocked) leave(p *pausing) {
	if p.key == "" {
		delete(b.loners, p)
	} else if b.pauses[p.key] == p {
		delete(b.pauses, p.key)
	}
	b.size -= p.behind
}

// grow ends all pauses if too many messages are blocked: they are tried at once, and a handler that can keep a message elsewhere
// sees that it should.
func (b *blocked) grow(n int) {
	b.size += n
	if b.size <= b.limit {
		return
	}
	for _, p := range b.pauses {
		p.over()
	}
	for p := range b.loners {
		p.over()
	}
}

func (p *pausing) over() {
	select {
	case <-p.end:
	default:
		close(p.end)
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
