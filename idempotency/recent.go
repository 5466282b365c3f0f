package idempotency

import (
	"encoding/binary"
	"sync/atomic"
)

// recent remembers which keys were completed or replayed lately. It is a hint that saves a round trip: most retries are in it, and are looked up
// without a transaction; a new key hardly ever is, and is begun without a look-up before. If the hint is wrong, it costs a statement and changes no
// result.
//
// A slot holds the beginning of the last hash that fell into it, so memory is bounded, 1 MiB, and nothing has to be evicted. At 3,000 new keys a
// second, a key of ten seconds ago is still there with a probability of 0.8.
type recent struct {
	slots [1 << 17]atomic.Uint64
}

func (r *recent) mark(k Key) {
	v := binary.BigEndian.Uint64(k.hash[:])
	r.slots[v%uint64(len(r.slots))].Store(v)
}

func (r *recent) has(k Key) bool {
	v := binary.BigEndian.Uint64(k.hash[:])
	return r.slots[v%uint64(len(r.slots))].Load() == v
}
