package idempotency

import (
	"encoding/binary"
	"sync/atomic"
)

// recent remembers which keys were completed or replayed lately. It is a hint that saves a round trip: most retries are in it, and are looked up
// without a transaction; a new key hardly ever is, and is begun without a look-up before. If the hint is wrong, it costs a statement and changes no
// result.
//
// A slot holds the beginning of the last hash that fell into it, so nothing has to be evicted. At 3,000 new keys a second, a key of ten seconds ago
// is still there with a probability of 0.8. A page of slots is made when the first hash falls into it: a store that has seen thousands of keys has
// all of them, which is 1 MiB. A store that is hardly used has few.
type recent struct {
	pages [256]atomic.Pointer[page]
}

type page [512]atomic.Uint64

func (r *recent) mark(k Key) {
	v := binary.BigEndian.Uint64(k.hash[:])
	at := &r.pages[v%uint64(len(r.pages))]
	p := at.Load()
	if p == nil {
		at.CompareAndSwap(nil, new(page)) // or it is made by somebody else at the same time
		p = at.Load()
	}
	p.slot(v).Store(v)
}

func (r *recent) has(k Key) bool {
	v := binary.BigEndian.Uint64(k.hash[:])
	p := r.pages[v%uint64(len(r.pages))].Load()
	return p != nil && p.slot(v).Load() == v
}

// slot takes bits of a hash that have not chosen the page.
func (p *page) slot(v uint64) *atomic.Uint64 { return &p[v>>8%uint64(len(p))] }
