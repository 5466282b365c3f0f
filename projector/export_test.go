package projector

// Mark returns the low-water mark of p's first store.
func Mark(p *Projector) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.relays) == 0 {
		return 0
	}
	return p.relays[0].mark.current()
}
