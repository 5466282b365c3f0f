package projector

import (
	"slices"

	"github.com/oncebox/oncebox/internal/lanedb"
)

// shortcutOpen is the most transactions that a shortcut is for. One that ends makes lanes begin anew.
const shortcutOpen = 8

// shortcut is a mark that counts although some transactions below it are open. A transaction that writes for ten minutes holds up the watermark as
// long, and each fetch would walk over all that was published meanwhile.
//
// All other transactions that could have drawn a number up to it have ended. So a lane whose rows up to it have left can get rows there from the
// open ones only. A fetch begins behind it and demands that those are open in its own snapshot, which then shows none of their rows. PostgreSQL
// compares that, because what is known here is as old as the last look. When one has ended, the fetch gives nothing, a look finds out, and the next
// fetch begins at the position. Nothing that a lane knows by then counts any more.
type shortcut struct {
	to   int64
	open []int64 // transaction ids, in order; none: there is no shortcut
	n    int     // changes when what lanes know of it becomes void
}

// drop ends the shortcut.
func (s *shortcut) drop() {
	if len(s.open) > 0 {
		*s = shortcut{n: s.n + 1}
	}
}

// find looks for the latest mark that waits for nothing but what the first one waits for. A mark that another worker has just taken may be younger
// than the look: of what it waits for, the look does not tell all.
func (s *shortcut) find(now lanedb.Watermark, waits []pendingMark) {
	n, _ := slices.BinarySearch(now.Running, waits[0].xid)
	open := now.Running[:n]
	if len(open) == 0 || len(open) > shortcutOpen {
		s.drop()
		return
	}
	if slices.ContainsFunc(s.open, func(xid int64) bool { return !slices.Contains(open, xid) }) {
		s.drop()
	}
	s.open = open
	next := now.Xmax // or the first that is not one of them
	if n < len(now.Running) {
		next = now.Running[n]
	}
	for _, p := range waits {
		if p.xid < next {
			s.to = max(s.to, p.seq)
		}
	}
}

// passed is how far a lane has come on a shortcut.
type passed struct {
	to int64
	n  int // of the shortcut
}

// cursor lets a fetch of the lane take the shortcut.
func (p *passed) cursor(s shortcut, c *lanedb.Cursor) {
	if to := p.reached(s); to > c.Position.Sent {
		c.After, c.While = to, s.open
	}
}

// reached is how far the lane has come on this shortcut, 0 on another one.
func (p *passed) reached(s shortcut) int64 {
	if p.n != s.n || len(s.open) == 0 {
		return 0
	}
	return p.to
}

// advance is told that nothing was left up to a number, as of a fetch that knew the shortcut.
func (p *passed) advance(s shortcut, to int64) {
	if len(s.open) == 0 {
		return
	}
	if p.n != s.n {
		*p = passed{n: s.n}
	}
	p.to = max(p.to, min(s.to, to))
}
