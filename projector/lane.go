package projector

import (
	"time"

	"github.com/oncebox/oncebox/outbox"
)

// lane is what a worker knows of a lane that it holds. The coordinator writes the first group of fields, under the worker's
// lock; the second belongs to the worker alone, while it is in a pass.
type lane struct {
	lease      outbox.Lease
	validUntil time.Time // by this process's clock, counted from before the lease was asked for
	change     int64     // the operators' counter as last renewed
	surplus    bool      // to be given back
	lost       bool      // somebody else has it
	proven     proof     // the worker writes it, the next renewal stores it

	loaded   int64             // the operators' counter at which blocks was read
	doubted  int64             // the operators' counter at which blocks was doubted last, and read again
	blocks   map[string]string // ordering key -> state: a copy of outbox_block
	after    int64             // everything up to it is gone for good, as long as the server has
	on       string            // this incarnation
	full     bool              // the last fetch took its whole quota, or ended at a row that did not fit
	pace     pace
	inFlight inFlight
	passed   int64            // all that is unsent up to it is of paused tenants
	topics   skip             // past rows of paused topics and tenants
	farSeen  time.Time        // when rows far behind those were looked for last
	tenants  map[string]*skip // past rows of tenants with a long backlog, see backlogged
	held     heldSkip         // past held rows of them
	stalled  []string         // keys of blocks behind which nothing is due or ever will be
}

// proof is what a worker has found: two cursors, and the incarnation of the server on which the first one holds.
type proof struct {
	after, passed int64
	on            string
}

func newLane(lease outbox.Lease, until time.Time) *lane {
	return &lane{
		lease: lease, validUntil: until, loaded: -1, doubted: -1, inFlight: newInFlight(lease.InFlight),
		after: lease.EmptyTo, on: lease.Incarnation,
	}
}

// startAnew forgets all cursors.
func (l *lane) startAnew(incarnation string) {
	l.after, l.on = 0, incarnation
	l.searchAnew()
}

// searchAnew forgets how far the searches got.
func (l *lane) searchAnew() { l.passed, l.topics, l.tenants, l.held = 0, skip{}, nil, heldSkip{} }

// usable tells whether a batch that begins now is settled before the lease ends.
func (l *lane) usable(now time.Time, publishTimeout time.Duration) bool {
	return !l.lost && now.Add(publishTimeout+settleMargin).Before(l.validUntil)
}
