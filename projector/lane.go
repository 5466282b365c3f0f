package projector

import (
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
)

// lane is what a worker knows of a lane that it serves: how far it has come, which keys are blocked, and how far each
// search in it has got. Only the goroutine of the passes uses it.
//
// All of it is a copy, or was learned. A lane that is lost needs no cleaning: the next owner reads position and
// blocks from the database.
type lane struct {
	lease    lanedb.Lease
	loaded   int64             // the operators' counter at which blocks was read; -1: blocks is unknown
	doubted  int64             // the operators' counter at which blocks was last doubted and read again
	blocks   map[string]string // ordering key -> state: a copy of outbox_block
	located  bool              // at is the position in the database, as long as the server has the incarnation of the lease
	at       lanedb.Position   // how far the lane has come
	reached  time.Time         // when at.Upto was written down; zero: unknown
	recorded time.Time         // when at was last written down
	taken    int64             // the highest number of a row that was taken in its turn
	full     bool              // the last fetch took its whole quota, or ended at a row that did not fit
	more     bool              // rows may be there, and no notification will come for them
	pace     pace
	inFlight inFlight
	short    passed           // how far the lane has come on a shortcut
	passed   int64            // every unsent row with a number up to this belongs to a paused tenant
	topics   skip             // the search past rows of paused topics and tenants
	farSeen  time.Time        // the last search far behind such rows, see far
	tenants  map[string]*skip // the searches past rows of tenants with a long backlog, see backlogged
	held     heldSkip         // the search past held rows of paused topics and tenants
	stalled  []string         // keys that are blocked without a row that is due or ever will be, see release
}

func newLane(lease lanedb.Lease) *lane {
	return &lane{lease: lease, loaded: -1, doubted: -1, more: true, inFlight: newInFlight(lease.InFlight), taken: lease.InFlight.UpTo}
}

// startAt takes a position that was read from the database. Another process may have written it, so the time of
// at.Upto is unknown.
func (l *lane) startAt(at lanedb.Position, incarnation string) {
	l.located, l.at, l.reached, l.lease.Incarnation = true, at, time.Time{}, incarnation
}

// startAnew forgets the position of the lane, which is void after a crash of the server. It is read again before the
// next fetch.
func (l *lane) startAnew() {
	l.located, l.at, l.short, l.more = false, lanedb.Position{}, passed{}, true
	l.searchAnew()
}

// searchAnew forgets how far the searches got. They begin again at the head of the lane.
func (l *lane) searchAnew() { l.passed, l.topics, l.tenants, l.held = 0, skip{}, nil, heldSkip{} }

// next returns the position of the lane after the rows of o are recorded.
func (l *lane) next(o out) lanedb.Position {
	at := l.at.Publish(o.logged[l.lease.Lane])
	if end, done := o.ends[l.lease.Lane]; done {
		at = at.Advance(end)
	}
	return at
}

// moveTo takes a position that this worker has written down.
func (l *lane) moveTo(at lanedb.Position) {
	now := time.Now()
	if at.Upto > l.at.Upto {
		l.reached = now
	}
	l.at, l.recorded = at, now
}

// past returns the position of the search for the rows of a tenant, or of otherTenants.
func (l *lane) past(tenant string) *skip {
	if l.tenants == nil {
		l.tenants = map[string]*skip{}
	}
	if l.tenants[tenant] == nil {
		l.tenants[tenant] = &skip{}
	}
	return l.tenants[tenant]
}

// knows reports whether a search has seen a row of the topic in the lane.
func (l *lane) knows(topic string) bool {
	_, fresh := l.topics.first[topic]
	_, held := l.held.first[topic]
	return fresh || held
}
