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
//
// A server that crashes may forget the last numbers that it gave out, and give them out again: a mark also has to wait
// until the log is on the disk up to it. A standby that takes over may have forgotten more than that, what was committed
// included. Its log has another timeline; then nothing is known of any lane.
type watermark struct {
	mu      sync.Mutex
	pending outbox.Mark
	valid   int64
	resets  int // how often all that was known became void

	looking sync.Mutex // held while somebody looks
	seen    time.Time  // when somebody looked last
}

// observe looks at the sequence, at most every observeInterval, and one worker at a time: of two answers the older could
// be taken last, and would look as if numbers had been forgotten.
func (m *watermark) observe(ctx context.Context, store *outbox.Store) error {
	if !m.looking.TryLock() {
		return nil
	}
	defer m.looking.Unlock()
	if time.Since(m.seen) < observeInterval {
		return nil
	}
	m.seen = time.Now()
	now, err := store.Observe(ctx)
	if err != nil {
		return err
	}
	m.take(now)
	return nil
}

func (m *watermark) take(now outbox.Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.pending.XID == 0:
		m.pending = now
	case now.Timeline != m.pending.Timeline || now.Seq < max(m.valid, m.pending.Seq):
		m.pending, m.valid = now, 0
		m.resets++
	case now.Xmin > m.pending.XID && now.Flushed >= m.pending.Written:
		m.valid = max(m.valid, m.pending.Seq)
		m.pending = now
	}
}

// generation changes when what the lanes' cursors rest on became void.
func (m *watermark) generation() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.resets
}

// current is to be read before a fetch begins.
func (m *watermark) current() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.valid
}
