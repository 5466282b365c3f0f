package messaging

// crowd counts the messages that cannot go on because their key pauses. Each of them takes a place in the queue; without a
// limit a single failing key would fill it, and the consumer would receive nothing for the others.
//
// Its state is guarded by the consumer's mutex.
type crowd struct {
	limit  int
	size   int
	pauses map[string]*pausing // by key
	loners map[*pausing]struct{}
}

// pausing is a message that waits before its next try.
type pausing struct {
	key    string
	behind int           // with it in the crowd: itself and those behind it
	end    chan struct{} // closed when the crowd is too large to go on waiting
}

func newCrowd(queue int) crowd {
	return crowd{limit: max(queue/4, 1), pauses: map[string]*pausing{}, loners: map[*pausing]struct{}{}}
}

// enter notes that a message pauses, with those behind it.
func (c *crowd) enter(key string, waiting int) *pausing {
	p := &pausing{key: key, behind: 1 + waiting, end: make(chan struct{})}
	if key == "" {
		c.loners[p] = struct{}{}
	} else {
		c.pauses[key] = p
	}
	c.grow(p.behind)
	return p
}

// join notes that another message waits behind one that pauses, if one does.
func (c *crowd) join(key string) {
	if p := c.pauses[key]; p != nil {
		p.behind++
		c.grow(1)
	}
}

// leave notes that the pause is over.
func (c *crowd) leave(p *pausing) {
	if p.key == "" {
		delete(c.loners, p)
	} else if c.pauses[p.key] == p {
		delete(c.pauses, p.key)
	}
	c.size -= p.behind
}

// grow ends all pauses if there are too many in the crowd: they are tried at once, and whoever can keep a message elsewhere
// sees that it should.
func (c *crowd) grow(n int) {
	c.size += n
	if c.size <= c.limit {
		return
	}
	for _, p := range c.pauses {
		p.over()
	}
	for p := range c.loners {
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

// QueueFull tells a handler whether the messages that wait for another try, this one and what is behind it in its key included,
// take so much of the consumer's queue that messages of other keys are kept out. A handler that can keep a message elsewhere
// should do so then, instead of asking for another try: package inbox parks it. False for a message that has no consumer.
func (m *Message) QueueFull() bool {
	c := m.consumer
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.crowd.size+1+len(c.keys[m.lineup]) > c.crowd.limit
}
