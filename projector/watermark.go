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
// until the log is on the disk up to it. It may forget the last settles too, which do not wait for the disk: rows that were
// published are there again, below all cursors. And a standby that takes over may have forgotten more than that, what was
// committed included. Both show by another incarnation or timeline, or by a lower number; then nothing is known of any lane.
type watermark struct {
	mu      sync.Mutex
	last    outbox.Watermark // the latest look
	pending outbox.Watermark // the look that is to count next; none after a look that failed
	valid   int64
	resets  int // how often all that was known became void

	looking sync.Mutex // held while somebody looks
	seen    time.Time  // when somebody looked last, and was answered
}

// observe looks at the sequence unless it was looked at within observeInterval. One worker looks at a time: of two answers the
// older could be taken last, and would look as if numbers had been forgotten. The others wait, because to fetch without an
// answer would be to trust cursors on a server that may be another one.
func (m *watermark) observe(ctx context.Context, store outbox.Relay) error {
	m.looking.Lock()
	defer m.looking.Unlock()
	if time.Since(m.seen) < observeInterval {
		return nil
	}
	now, err := store.ReadWatermark(ctx)
	if err != nil {
		m.doubt()
		return err
	}
	m.take(now)
	m.seen = time.Now()
	return nil
}

// doubt drops the mark that is to count next: numbers and transaction ids may be given out again, and it would be confirmed by
// others than its own.
func (m *watermark) doubt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending = outbox.Watermark{}
}

func (m *watermark) take(now outbox.Watermark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.last
	m.last = now
	switch {
	case last.XID == 0:
		m.pending = now
	case now.Timeline != last.Timeline || now.Incarnation != last.Incarnation || now.Seq < max(m.valid, last.Seq):
		m.pending, m.valid = now, 0
		m.resets++
	case m.pending.XID == 0:
		m.pending = now
	case now.Xmin > m.pending.XID && now.Flushed >= m.pending.Written:
		m.valid = max(m.valid, m.pending.Seq)
		m.pending = now
	}
}

// latest is generation after [watermark.observe]: for what must not rest on a server that has gone.
func (m *watermark) latest(ctx context.Context, store outbox.Relay) (n int, incarnation string, err error) {
	if err := m.observe(ctx, store); err != nil {
		return 0, "", err
	}
	n, incarnation = m.generation()
	return n, incarnation, nil
}

// generation changes when what the lanes' cursors rest on became void. incarnation is that of the server.
func (m *watermark) generation() (n int, incarnation string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.resets, m.last.Incarnation
}

// current is to be read before a fetch begins.
func (m *watermark) current() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.valid
}
