package progress

import (
	"slices"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// shortcutOpen is the largest number of open transactions for which there is a shortcut. Each of them ends it for all
// lanes when it ends, so with many of them a shortcut would never last.
const shortcutOpen = 8

// Shortcut is a mark that counts although some transactions below it are open. A transaction that writes for ten
// minutes holds up the watermark for ten minutes, and each fetch would walk over the index entries of all rows that
// were published meanwhile.
//
// All transactions that could have drawn a number up to the mark have ended, except the open ones. So if the rows of
// a lane up to the mark have left, only the open transactions can bring rows there. A fetch may begin behind the mark
// as long as these transactions are open, because their rows are not visible then. The same is true of a search that has
// passed all rows up to the mark.
//
// The race is that a transaction ends between the last look and the fetch. Its rows would be visible and the fetch
// would begin behind them: they would be late, and a later row of the same key could be published first. So the fetch
// names the open transactions, and PostgreSQL compares them with the snapshot of the fetch itself. If one of them has
// ended, the fetch returns nothing. Then lookAgain finds out, the shortcut is dropped, and the next fetch begins at
// the position of the lane. The progress that lanes made on the shortcut is void by then, see [Strayed].
type Shortcut struct {
	to   int64
	open []int64 // transaction ids, in order; empty: there is no shortcut
	N    int     // changes when the progress of lanes on the shortcut becomes void
}

// drop ends the shortcut. The number n grows, so that lanes cannot take their old progress for progress on the next
// shortcut.
func (s *Shortcut) drop() {
	if len(s.open) > 0 {
		*s = Shortcut{N: s.N + 1}
	}
}

// find looks for the latest mark that waits for the same transactions as the first one, and for no others. now is the
// last look, waits are the marks that do not count yet, the oldest first.
//
// Another worker may have taken a mark after the look. Such a mark may wait for transactions that the look does not
// list, so only marks below the next running transaction, or below the end of the look, are used.
//
// The shortcut grows without becoming void as long as its transactions are open. If one of them is not open any more,
// it is dropped first.
func (s *Shortcut) find(now lanedb.Watermark, waits []pendingMark) {
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
	next := now.Xmax // or the first running transaction that is not one of them
	if n < len(now.Running) {
		next = now.Running[n]
	}
	for _, p := range waits {
		if p.xid < next {
			s.to = max(s.to, p.seq)
		}
	}
}

// Reached returns how far a lane, or a search in it, has come on this shortcut. It returns 0 if its progress belongs to
// another shortcut.
func (s *Shortcut) Reached(p schedule.Place) int64 {
	if len(s.open) == 0 {
		return 0
	}
	return p.On(s.N)
}

// Advance records that a statement on this shortcut has shown all rows up to the number to, and that they have left. For a
// search they may also stay.
func (s *Shortcut) Advance(p *schedule.Place, to int64) {
	if len(s.open) > 0 {
		p.Advance(s.N, min(s.to, to))
	}
}

// Limit returns the place behind which a search may remember nothing: the mark, or the end of the shortcut.
func (s *Shortcut) Limit(mark int64) schedule.Place {
	return schedule.Place{To: max(mark, s.to), N: s.N}
}

// Cursor returns the cursor of a search in a lane. It begins behind all rows that the search has passed, on this shortcut, too.
func (s *Shortcut) Cursor(l *Lane, by *schedule.Search) lanedb.Cursor {
	c := lanedb.Cursor{Lease: l.Lease, Position: l.At, After: by.To}
	s.begin(&c, by.Short)
	return c
}

// AreOnShortcut reports whether a statement with these cursors begins behind open transactions. If it returns nothing, one of them
// may have ended.
func AreOnShortcut(cursors []lanedb.Cursor) bool {
	return slices.ContainsFunc(cursors, func(c lanedb.Cursor) bool { return len(c.While) > 0 })
}

// begin makes a statement begin where the progress on the shortcut ends, if that is further than its cursor.
func (s *Shortcut) begin(c *lanedb.Cursor, p schedule.Place) {
	if to := s.Reached(p); to > max(c.Position.Sent, c.After) {
		c.After, c.While = to, s.open
	}
}
