package projector

import (
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
)

// lane is what a worker knows of a lane that it holds. The coordinator writes the first group of fields, under the worker's
// lock; the second belongs to the worker alone, while it is in a pass.
type lane struct {
	lease      lanedb.Lease
	validUntil time.Time // by this process's clock, counted from before the lease was asked for
	change     int64     // the operators' counter as last renewed
	surplus    bool      // to be given back
	lost       bool      // somebody else has it
	proven     int64     // passed, as the worker says: the next renewal stores it
	openTo     int64     // short, likewise

	loaded   int64             // the operators' counter at which blocks was read
	doubted  int64             // the operators' counter at which blocks was doubted last, and read again
	blocks   map[string]string // ordering key -> state: a copy of outbox_block
	located  bool              // at is what the database has, as long as the server has the incarnation of the lease
	at       lanedb.Position   // how far the lane has come
	reached  time.Time         // when at.Upto was written down; zero: nobody knows
	recorded time.Time         // when at was last written down
	taken    int64             // the highest number of those that were taken in their turn
	full     bool              // the last fetch took its whole quota, or ended at a row that did not fit
	more     bool              // rows may be there of which nobody will tell
	pace     pace
	inFlight inFlight
	short    passed           // how far it has come on a shortcut
	passed   int64            // all that is unsent up to it is of paused tenants
	topics   skip             // past rows of paused topics and tenants
	farSeen  time.Time        // when rows far behind those were looked for last
	tenants  map[string]*skip // past rows of tenants with a long backlog, see backlogged
	held     heldSkip         // past held rows of them
	stalled  []string         // keys of blocks behind which nothing is due or ever will be
}

func newLane(lease lanedb.Lease, until time.Time) *lane {
	return &lane{lease: lease, validUntil: until, loaded: -1, doubted: -1, more: true, inFlight: newInFlight(lease.InFlight), taken: lease.InFlight.UpTo}
}

// startAt takes a position that was read. Others may have written it down.
func (l *lane) startAt(at lanedb.Position, incarnation string) {
	l.located, l.at, l.reached, l.lease.Incarnation = true, at, time.Time{}, incarnation
}

// startAnew forgets where the lane is.
func (l *lane) startAnew() {
	l.located, l.at, l.short, l.more = false, lanedb.Position{}, passed{}, true
	l.searchAnew()
}

// searchAnew forgets how far the searches got.
func (l *lane) searchAnew() { l.passed, l.topics, l.tenants, l.held = 0, skip{}, nil, heldSkip{} }

// usable tells whether a batch that begins now is settled before the lease ends.
func (l *lane) usable(now time.Time, publishTimeout time.Duration) bool {
	return !l.lost && now.Add(publishTimeout+settleMargin).Before(l.validUntil)
}

// next is where the lane is when what is out was written down.
func (l *lane) next(o out) lanedb.Position {
	at := l.at.Publish(o.logged[l.lease.Lane])
	if end, done := o.ends[l.lease.Lane]; done {
		at = at.Advance(end)
	}
	return at
}

// moveTo takes a position that was written down.
func (l *lane) moveTo(at lanedb.Position) {
	now := time.Now()
	if at.Upto > l.at.Upto {
		l.reached = now
	}
	l.at, l.recorded = at, now
}
