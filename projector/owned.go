package projector

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/projector/internal/progress"
)

// owned has the lanes of one worker, and what several goroutines share of them: the coordinator adds and renews them,
// the stores and the listener report commits in them, and the worker asks from which of them it may publish. All of
// it is under one lock. The lane itself, as the worker knows it, is not: only the worker uses that.
type owned struct {
	margin time.Duration // a lease must last this much longer when a batch begins
	wake   chan struct{} // has a token if rows may have come: the next rest ends at once

	mu    sync.Mutex
	lanes map[int16]*holding
	heard outboxdb.LaneSet // lanes in which a commit was reported since the last fetch began
}

// holding is a lane with its lease.
type holding struct {
	lane       *progress.Lane
	lease      lanedb.Lease
	validUntil time.Time // by the clock of this process, counted from a moment before the lease was asked for
	change     int64     // the operators' counter at the last renewal
	surplus    bool      // the worker has to give the lane back
	lost       bool      // another projector has the lane
}

func newOwned(publishTimeout time.Duration) *owned {
	return &owned{margin: publishTimeout + settleMargin, wake: make(chan struct{}, 1), lanes: map[int16]*holding{}}
}

// of returns the holding of a lane, or nil. A lane that was lost and claimed again is another one: its lease, position
// and blocks are new, and rows that were read under the old lease must not be sent. The caller has the lock.
func (o *owned) of(l *progress.Lane) *holding {
	if h := o.lanes[l.Lease.Lane]; h != nil && h.lane == l {
		return h
	}
	return nil
}

// isUsable reports whether a batch that begins now is settled before the lease ends, even if the broker needs all its
// time.
func (o *owned) isUsable(h *holding, now time.Time) bool {
	return h != nil && !h.lost && now.Add(o.margin).Before(h.validUntil)
}

// nudge makes the worker look at all its lanes, at once or after the pass under way.
func (o *owned) nudge() { o.hear(outboxdb.AllLanes) }

// hear makes the worker look at the given lanes, as far as it holds them.
func (o *owned) hear(lanes outboxdb.LaneSet) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.noteHeard(lanes)
}

// noteHeard is hear for callers that have the lock.
//
// No commit is missed, whenever it is reported. A worker that rests is woken by the token. A worker in a pass whose
// fetch has not begun takes the lanes with takeHeard, and the token costs one pass more. If the fetch has begun, it
// may not see the rows: the lanes stay in heard, and the token starts another pass. The channel holds one token,
// because one pass serves any number of commits.
func (o *owned) noteHeard(lanes outboxdb.LaneSet) {
	if lanes != outboxdb.AllLanes && !o.holds(lanes) {
		return
	}
	o.heard |= lanes
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *owned) holds(lanes outboxdb.LaneSet) bool {
	for n := range o.lanes {
		if lanes.Has(n) {
			return true
		}
	}
	return false
}

// takeHeard returns the lanes in which a commit was reported, and forgets them.
func (o *owned) takeHeard() outboxdb.LaneSet {
	o.mu.Lock()
	defer o.mu.Unlock()
	heard := o.heard
	o.heard = 0
	return heard
}

// lookAtAll makes the next fetch look at all lanes, without a token: a token would end the next rest at once.
func (o *owned) lookAtAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.heard = outboxdb.AllLanes
}

// all returns all lanes, lost ones too.
func (o *owned) all() (list []*progress.Lane) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range o.lanes {
		list = append(list, h.lane)
	}
	return list
}

// ready returns the lanes whose leases last long enough for a batch, in order of their numbers.
func (o *owned) ready() (list []*progress.Lane) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(o.lanes)) {
		if h := o.lanes[n]; o.isUsable(h, now) {
			list = append(list, h.lane)
		}
	}
	return list
}

// stillReady returns the lanes whose leases last long enough for a batch that begins now, without lanes whose blocks
// are in doubt since an earlier part of this pass. One lane in doubt would be enough to make publish send nothing
// from any lane.
func (o *owned) stillReady(lanes []*progress.Lane) (list []*progress.Lane) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range lanes {
		if l.Loaded >= 0 && o.isUsable(o.of(l), now) {
			list = append(list, l)
		}
	}
	return list
}

// mayPublish reports whether rows may be handed over now: the leases of their lanes last until the rows are settled,
// and the blocks of the lanes, which decided about the rows, are still those of the database as far as this worker
// knows.
func (o *owned) mayPublish(lanes map[int16]*progress.Lane, rows []*outboxdb.Row) bool {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range rows {
		if l := lanes[r.Lane]; l.Loaded < 0 || !o.isUsable(o.of(l), now) {
			return false
		}
	}
	return true
}

// changed returns the lanes whose blocks are unknown, or older than what an operator has changed.
func (o *owned) changed(lanes []*progress.Lane) (list []*progress.Lane) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range lanes {
		if h := o.of(l); l.Loaded < 0 || h != nil && l.Loaded < h.change {
			list = append(list, l)
		}
	}
	return list
}

// keeps reports whether at least one of the lanes still belongs to this worker.
func (o *owned) keeps(lanes map[int16]*progress.Lane) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range lanes {
		if h := o.of(l); h != nil && !h.lost {
			return true
		}
	}
	return false
}

// prove passes two numbers for each lane to the next renewal, which stores them for the statistics. All unsent rows
// up to the first number belong to paused tenants. All unsent rows up to the second one belong to transactions that
// are still open.
func (o *owned) prove(lanes []*progress.Lane, short progress.Shortcut) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range lanes {
		if h := o.of(l); h != nil {
			h.lease.PassedTo, h.lease.OpenTo = l.Passed, l.Short.Reached(short)
		}
	}
}

// add adds a lane that was claimed.
func (o *owned) add(lease lanedb.Lease, until time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lanes[lease.Lane] = &holding{lane: progress.NewLane(lease), lease: lease, validUntil: until}
}

// count returns the number of lanes that this worker will keep.
func (o *owned) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, h := range o.lanes {
		if !h.surplus && !h.lost {
			n++
		}
	}
	return n
}

// giveBackOne marks a lane as surplus. The worker itself gives it back between two batches, see tidy.
func (o *owned) giveBackOne() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range o.lanes {
		if !h.surplus && !h.lost {
			h.surplus = true
			return
		}
	}
}

// tidy removes lanes that are lost and lanes that are surplus. It returns the leases of the surplus ones, which have
// to be released. A surplus lane that is busy stays until the next time.
func (o *owned) tidy(busy func(*progress.Lane) bool) (surplus []lanedb.Lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for n, h := range o.lanes {
		if h.surplus && !h.lost {
			if busy(h.lane) {
				continue
			}
			surplus = append(surplus, h.lease)
		}
		if h.surplus || h.lost {
			delete(o.lanes, n)
		}
	}
	return surplus
}

// leases returns the leases that have to be renewed. A surplus lane is among them until it is given back.
func (o *owned) leases() (list []lanedb.Lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range o.lanes {
		if !h.lost {
			list = append(list, h.lease)
		}
	}
	return list
}

// numbers returns the numbers of the lanes that are not lost.
func (o *owned) numbers() (list []int16) {
	for _, l := range o.leases() {
		list = append(list, l.Lane)
	}
	return list
}

// renewed takes the answer to a renewal: the end of the leases, and the operators' counter of each lane that is still
// held. A lane without a counter is lost. It returns how many lanes the worker will keep.
func (o *owned) renewed(until time.Time, changes map[int16]int64) (kept int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for n, h := range o.lanes {
		change, ok := changes[n]
		if !ok {
			h.lost = true
			continue
		}
		if change > h.change || !o.isUsable(h, time.Now()) { // the passes left it out until now, so rows may wait
			o.noteHeard(outboxdb.AllLanes)
		}
		h.change, h.validUntil = max(change, h.change), until
		if !h.surplus {
			kept++
		}
	}
	return kept
}

// drop forgets all lanes and returns their leases.
func (o *owned) drop() []lanedb.Lease {
	out := o.leases()
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.lanes)
	return out
}
