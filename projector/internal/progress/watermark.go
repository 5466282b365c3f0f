package progress

import (
	"slices"
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
)

// Watermark is a number of the sequence at or below which no row can appear any more. Published rows leave dead
// entries in the index, and every fetch from the head of a lane would walk over them until VACUUM removes them. With
// the mark, the fetch begins behind them.
//
// Numbers become visible out of order: a transaction draws 7 and stays open, another one draws 8 and commits. A relay
// that sees 8 must not conclude that all rows up to 8 are there. So a look reads the sequence first, say v, and
// assigns a transaction id x after that. Every transaction that has drawn a number up to v has an id below x, because
// rows assign the id before the number. The mark v counts once a later look shows that all transactions up to x have
// ended (Xmin is beyond x).
//
// The mark may then be used by fetches that begin afterwards, and only by them. A fetch that began earlier may have
// an older snapshot, in which a row below the mark is not visible yet. That is why callers read the mark before they
// fetch, and never after.
//
// A server that crashes may forget the last numbers that it gave out, and give them out again. So may a standby that
// takes over. Both show by another incarnation or timeline, or by a lower number. Then everything that is known about
// the lanes is void (resets). Until that is noticed, the statements that rest on a mark find another incarnation and
// do nothing.
type Watermark struct {
	last    lanedb.Watermark // the latest look
	pending []pendingMark    // looks that do not count yet; empty after a look that failed
	short   Shortcut         // exists while one of them waits for long
	valid   int64            // the mark; 0: none
	resets  int              // how often everything that was known became void
	doubts  int              // how often a look failed

	Patience time.Duration // the time that a mark waits before there is a shortcut
}

// pendingMark counts once all transactions up to xid have ended. xid was assigned after seq was read.
type pendingMark struct {
	seq, xid int64
	since    time.Time
}

// maxPending is the largest number of looks that wait to count. If there are more, because a transaction stays open
// for long, every second one is dropped: the marks become coarser, and none of them becomes wrong.
const maxPending = 64

// Doubt drops the marks that do not count yet, after a look that failed. The server may have crashed and may give out
// the same numbers and transaction ids again. A pending mark would then be confirmed by the end of transactions that
// it knows nothing about.
func (m *Watermark) Doubt() {
	m.pending = nil
	m.doubts++
}

// Look is the state of the watermark at the moment at which a statement began.
type Look struct {
	seq            int64
	resets, doubts int
}

// Begin must be called before a statement is sent that looks at the sequence. With its result, take and took find out
// what has changed meanwhile.
func (m *Watermark) Begin() Look {
	return Look{max(m.valid, m.last.Seq), m.resets, m.doubts}
}

// Take takes an answer of [lanedb.Log.ReadWatermark].
//
// A number below that of the look before means that the server has forgotten numbers. A number below that of a took
// that was answered meanwhile means nothing, so the comparison is with before and not with last.
func (m *Watermark) Take(before Look, now lanedb.Watermark) {
	last := m.last
	m.last = now
	switch {
	case last.XID == 0:
	case now.Timeline != last.Timeline || now.Incarnation != last.Incarnation || now.Seq < before.seq:
		m.pending, m.valid = nil, 0
		m.resets++
		m.short.drop()
	default:
		m.last.Seq = max(now.Seq, last.Seq) // the answer of a took may have come first
		m.confirm(now.Xmin)
	}
	if waits := m.pending; len(waits) > 0 && time.Since(waits[0].since) >= m.Patience {
		m.short.find(now, waits)
	} else {
		m.short.drop()
	}
	m.wait(pendingMark{now.Seq, now.XID, time.Now()})
}

// Took takes an answer of [lanedb.Log.Take], which saves looks while the relay is busy. That statement may have read
// the sequence after its transaction id was assigned, so its number proves nothing about its id. The new mark is the
// number that was known before the statement was sent.
//
// The answer is ignored if a look has failed or has found another server meanwhile.
func (m *Watermark) Took(before Look, now lanedb.Watermark) {
	if now.XID == 0 || before.resets != m.resets || before.doubts != m.doubts {
		return
	}
	m.confirm(now.Xmin)
	if before.seq > m.valid {
		m.wait(pendingMark{before.seq, now.XID, time.Now()})
	}
	m.last.Seq = max(m.last.Seq, now.Seq)
}

// confirm records that all transactions below xmin have ended. The pending marks that waited for them count now. It
// drops pending marks that are not beyond the mark any more.
func (m *Watermark) confirm(xmin int64) {
	m.pending = slices.DeleteFunc(m.pending, func(p pendingMark) bool {
		if p.xid < xmin {
			m.valid = max(m.valid, p.seq)
			return true
		}
		return p.seq <= m.valid
	})
}

// wait adds a pending mark.
func (m *Watermark) wait(p pendingMark) {
	if len(m.pending) == maxPending {
		half := m.pending[:0]
		for i := 0; i < len(m.pending); i += 2 {
			half = append(half, m.pending[i])
		}
		m.pending = half
	}
	m.pending = append(m.pending, p)
}

// Generation returns a number that changes whenever the cursors of all lanes become void, and the incarnation of the
// server as of the last look.
func (m *Watermark) Generation() (n int, incarnation string) {
	return m.resets, m.last.Incarnation
}

// Current returns the mark. It must be read before a fetch begins, see [Watermark].
func (m *Watermark) Current() int64 {
	return m.valid
}

// Shortcut returns the shortcut. It must be read before a fetch begins, as current.
func (m *Watermark) Shortcut() Shortcut {
	return m.short
}
