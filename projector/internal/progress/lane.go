package progress

import (
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// Lane is what a worker knows of a lane that it serves: how far it has come, which keys are blocked, and how far each
// search in it has got. Only the goroutine of the passes uses it.
//
// All of it is a copy, or was learned. A lane that is lost needs no cleaning: the next owner reads position and
// blocks from the database.
type Lane struct {
	Lease    lanedb.Lease
	Blocks   Blocks
	Located  bool            // At is the position in the database, as long as the server has the incarnation of the lease
	At       lanedb.Position // how far the lane has come
	reached  time.Time       // when At.Upto was written down; zero: unknown
	recorded time.Time       // when At was last written down
	Taken    int64           // the highest number of a row that was taken in its turn
	Full     bool            // the last fetch took its whole quota, or ended at a row that did not fit
	More     bool            // rows may be there, and no notification will come for them
	pace     schedule.Pace
	InFlight inFlight
	Short    schedule.Place              // how far the lane has come on a shortcut
	Passed   int64                       // every unsent row with a number up to this belongs to a paused tenant
	Topics   schedule.Search             // the search past rows of paused topics and tenants
	Tenants  map[string]*schedule.Search // the searches past rows of tenants with a long backlog, by tenant
	Held     schedule.HeldSearch         // the search past held rows of paused topics and tenants
}

// NewLane returns a lane that was just claimed. Its position and its blocks are unknown until they are read.
func NewLane(lease lanedb.Lease) *Lane {
	return &Lane{Lease: lease, Blocks: unknownBlocks(), More: true, InFlight: newInFlight(lease.InFlight), Taken: lease.InFlight.UpTo}
}

// StartAt takes a position that was read from the database. Another process may have written it, so the time of
// At.Upto is unknown.
func (l *Lane) StartAt(at lanedb.Position, incarnation string) {
	l.Located, l.At, l.reached, l.Lease.Incarnation = true, at, time.Time{}, incarnation
}

// StartAnew forgets the position of the lane, which is void after a crash of the server. It is read again before the
// next fetch.
func (l *Lane) StartAnew() {
	l.Located, l.At, l.Short, l.More = false, lanedb.Position{}, schedule.Place{}, true
	l.SearchAnew()
}

// SearchAnew forgets how far the searches got. They begin again at the head of the lane.
func (l *Lane) SearchAnew() {
	l.Passed, l.Topics, l.Held = 0, l.Topics.Anew(), schedule.HeldSearch{}
	for _, s := range l.Tenants {
		*s = s.Anew()
	}
}

// LoadBlocks takes the blocks that were read from the database. The search past held rows begins again: a row that an
// operator has released may be older than the rows that it has passed.
func (l *Lane) LoadBlocks(from lanedb.LaneBlocks) {
	l.Blocks.Load(from)
	l.More, l.Held = true, schedule.HeldSearch{}
}

// Next returns the position of the lane after the rows of o are recorded.
func (l *Lane) Next(o Out) lanedb.Position {
	at := l.At.Publish(o.logged[l.Lease.Lane])
	if end, done := o.ends[l.Lease.Lane]; done {
		at = at.Advance(end)
	}
	return at
}

// MoveTo takes a position that this worker has written down.
func (l *Lane) MoveTo(at lanedb.Position) {
	now := time.Now()
	if at.Upto > l.At.Upto {
		l.reached = now
	}
	l.At, l.recorded = at, now
}

// Past returns the position of the search for the rows of a tenant, or of [schedule.OtherTenants].
func (l *Lane) Past(tenant string) *schedule.Search {
	if l.Tenants == nil {
		l.Tenants = map[string]*schedule.Search{}
	}
	if l.Tenants[tenant] == nil {
		l.Tenants[tenant] = &schedule.Search{}
	}
	return l.Tenants[tenant]
}

// Knows reports whether a search has seen a row of the topic in the lane.
func (l *Lane) Knows(topic string) bool {
	_, fresh := l.Topics.First[topic]
	_, held := l.Held.First[topic]
	return fresh || held
}
