package projector

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
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
// A server that crashes may forget the last numbers that it gave out, and give them out again, and so may a standby that takes over.
// Both show by another incarnation or timeline, or by a lower number; then nothing is known of any lane. Until that is noticed, the statements that
// rest on a mark find another incarnation and do nothing.
type watermark struct {
	mu      sync.Mutex
	last    lanedb.Watermark // the latest look
	pending []pendingMark    // looks that are to count; none after a look that failed
	short   shortcut         // while one of them waits for long
	valid   int64
	resets  int // how often all that was known became void
	doubts  int // how often a look failed

	patience time.Duration // for how long a mark waits before there is a shortcut

	looking sync.Mutex // held while somebody looks
	seen    time.Time  // when somebody looked last, and was answered
}

// pendingMark counts once all transactions up to xid, which was assigned after seq was read, have ended.
type pendingMark struct {
	seq, xid int64
	since    time.Time
}

// maxPending is how many looks may wait to count. While somebody's transaction stays open for long, every second one is dropped.
const maxPending = 64

// observe looks at the sequence unless it was looked at within observeInterval. One worker looks at a time: of two answers the
// older could be taken last, and would look as if numbers had been forgotten. The others wait, because to fetch without an
// answer would be to trust cursors on a server that may be another one.
func (m *watermark) observe(ctx context.Context, log lanedb.Log) error {
	m.looking.Lock()
	defer m.looking.Unlock()
	if time.Since(m.seen) < observeInterval {
		return nil
	}
	before := m.begin()
	now, err := log.ReadWatermark(ctx)
	if err != nil {
		m.doubt()
		return err
	}
	m.take(before, now)
	m.seen = time.Now()
	return nil
}

// lookAgain looks at the sequence at once, because a fetch on a shortcut gave nothing. It tells whether that was because the shortcut has ended.
func (m *watermark) lookAgain(ctx context.Context, log lanedb.Log, before shortcut) (ended bool, err error) {
	m.looking.Lock()
	m.seen = time.Time{}
	m.looking.Unlock()
	err = m.observe(ctx, log)
	return m.shortcut().n != before.n, err
}

// doubt drops the mark that is to count next: numbers and transaction ids may be given out again, and it would be confirmed by
// others than its own.
func (m *watermark) doubt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending = nil
	m.doubts++
}

// look is what was known when a statement began.
type look struct {
	seq            int64
	resets, doubts int
}

// begin is to be called before a statement is sent that looks at the sequence.
func (m *watermark) begin() look {
	m.mu.Lock()
	defer m.mu.Unlock()
	return look{max(m.valid, m.last.Seq), m.resets, m.doubts}
}

// take takes an answer of [lanedb.Log.ReadWatermark].
func (m *watermark) take(before look, now lanedb.Watermark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.last
	m.last = now
	switch {
	case last.XID == 0:
	case now.Timeline != last.Timeline || now.Incarnation != last.Incarnation || now.Seq < before.seq:
		m.pending, m.valid = nil, 0
		m.resets++
		m.short.drop()
	default:
		m.last.Seq = max(now.Seq, last.Seq) // a take may have been faster
		m.confirm(now.Xmin)
	}
	if waits := m.pending; len(waits) > 0 && time.Since(waits[0].since) >= m.patience {
		m.short.find(now, waits)
	} else {
		m.short.drop()
	}
	m.wait(pendingMark{now.Seq, now.XID, time.Now()})
}

// took takes an answer of [lanedb.Log.Take]. What it read of the sequence was read after its transaction id was assigned, perhaps. So the mark is
// what was known before it was sent.
func (m *watermark) took(before look, now lanedb.Watermark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.XID == 0 || before.resets != m.resets || before.doubts != m.doubts {
		return
	}
	m.confirm(now.Xmin)
	if before.seq > m.valid {
		m.wait(pendingMark{before.seq, now.XID, time.Now()})
	}
	m.last.Seq = max(m.last.Seq, now.Seq)
}

// confirm is told that all transactions below xmin have ended.
func (m *watermark) confirm(xmin int64) {
	m.pending = slices.DeleteFunc(m.pending, func(p pendingMark) bool {
		if p.xid < xmin {
			m.valid = max(m.valid, p.seq)
			return true
		}
		return p.seq <= m.valid
	})
}

func (m *watermark) wait(p pendingMark) {
	if len(m.pending) == maxPending {
		half := m.pending[:0]
		for i := 0; i < len(m.pending); i += 2 {
			half = append(half, m.pending[i])
		}
		m.pending = half
	}
	m.pending = append(m.pending, p)
}

// latest is generation after [watermark.observe]: for what must not rest on a server that has gone.
func (m *watermark) latest(ctx context.Context, log lanedb.Log) (n int, incarnation string, err error) {
	if err := m.observe(ctx, log); err != nil {
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

// shortcut is to be read before a fetch begins.
func (m *watermark) shortcut() shortcut {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.short
}
