package projector

import (
	"context"
	"sync"
	"time"

	"github.com/oncebox/oncebox/outbox"
)

// observeInterval is how often the sequence is looked at while there is work.
const observeInterval = 200 * time.Millisecond

// watermark is the sequence up to which no row can appear any more. Published rows leave dead entries in the index,
// which every fetch from the head would walk over until VACUUM comes; behind the mark it starts after them.
//
// A mark counts once a later observation shows that every transaction has ended that could have drawn a number below
// it. It may then be used by fetches that begin afterwards, and only by them: the snapshot of an earlier one may be
// older than a row below the mark.
type watermark struct {
	mu      sync.Mutex
	pending outbox.Mark
	valid   int64
	seen    time.Time
}

// observe looks at the sequence, at most every observeInterval.
func (m *watermark) observe(ctx context.Context, store *outbox.Store) error {
	m.mu.Lock()
	due := time.Since(m.seen) >= observeInterval
	if due {
		m.seen = time.Now()
	}
	m.mu.Unlock()
	if !due {
		return nil
	}
	now, err := store.Observe(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pending.XID == 0 {
		m.pending = now
		return nil
	}
	if now.Xmin > m.pending.XID {
		m.valid = max(m.valid, m.pending.Seq)
		m.pending = now
	}
	return nil
}

// current is to be read before a fetch begins.
func (m *watermark) current() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.valid
}
