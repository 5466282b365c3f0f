package leases

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/projector/internal/progress"
)

// Owned has the lanes of one worker, and what several goroutines share of them: the coordinator adds and renews them,
// the stores and the listener report commits in them, and the worker asks from which of them it may publish. All of
// it is under one lock. The lane itself, as the worker knows it, is not: only the worker uses that.
type Owned struct {
	margin time.Duration // a lease must last this much longer when a batch begins
	Wake   chan struct{} // has a token if rows may have come: the next rest ends at once

	mu    sync.Mutex
	lanes map[int16]*holding
	Heard outboxdb.LaneSet // lanes in which a commit was reported since the last fetch began
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

// NewOwned returns a worker's lanes, none at first. A batch may begin while the lease of each of its lanes lasts for
// margin at least.
func NewOwned(margin time.Duration) *Owned {
	return &Owned{margin: margin, Wake: make(chan struct{}, 1), lanes: map[int16]*holding{}}
}

// of returns the holding of a lane, or nil. A lane that was lost and claimed again is another one: its lease, position
// and blocks are new, and rows that were read under the old lease must not be sent. The caller has the lock.
func (o *Owned) of(l *progress.Lane) *holding {
	if h := o.lanes[l.Lease.Lane]; h != nil && h.lane == l {
		return h
	}
	return nil
}

// isUsable reports whether a batch that begins now is settled before the lease ends, even if the broker needs all its
// time. A lane that is surplus is usable until it is given back: its rows need not wait for its next owner.
func (o *Owned) isUsable(h *holding, now time.Time) bool {
	return h != nil && !h.lost && now.Add(o.margin).Before(h.validUntil)
}

// Nudge makes the worker look at all its lanes, at once or after the pass under way.
func (o *Owned) Nudge() { o.Hear(outboxdb.AllLanes) }

// Hear makes the worker look at the given lanes, as far as it holds them.
func (o *Owned) Hear(lanes outboxdb.LaneSet) {
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
func (o *Owned) noteHeard(lanes outboxdb.LaneSet) {
	if lanes != outboxdb.AllLanes && !o.holds(lanes) {
		return
	}
	o.Heard |= lanes
	select {
	case o.Wake <- struct{}{}:
	default:
	}
}

// holds reports whether one of the lanes is this worker's. Most commits are in lanes of other workers, and must not end
// this worker's rest.
func (o *Owned) holds(lanes outboxdb.LaneSet) bool {
	for n := range o.lanes {
		if lanes.Has(n) {
			return true
		}
	}
	return false
}

// TakeHeard returns the lanes in which a commit was reported, and forgets them. It must be called before the fetch begins:
// a commit that is reported after that may be invisible to the fetch, and has to stay.
func (o *Owned) TakeHeard() outboxdb.LaneSet {
	o.mu.Lock()
	defer o.mu.Unlock()
	heard := o.Heard
	o.Heard = 0
	return heard
}

// LookAtAll makes the next fetch look at all lanes, without a token: a token would end the next rest at once.
func (o *Owned) LookAtAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Heard = outboxdb.AllLanes
}

// All returns all lanes, lost ones too.
func (o *Owned) All() (list []*progress.Lane) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range o.lanes {
		list = append(list, h.lane)
	}
	return list
}

// Ready returns the lanes whose leases last long enough for a batch, in order of their numbers.
func (o *Owned) Ready() (list []*progress.Lane) {
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

// StillReady returns the lanes whose leases last long enough for a batch that begins now, without lanes whose blocks
// are in doubt since an earlier part of this pass. One lane in doubt would be enough to make publish send nothing
// from any lane.
func (o *Owned) StillReady(lanes []*progress.Lane) (list []*progress.Lane) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range lanes {
		if l.Blocks.AreKnown() && o.isUsable(o.of(l), now) {
			list = append(list, l)
		}
	}
	return list
}

// MayPublish reports whether the rows may be given to the broker now. Two conditions hold for the lane of each row. Its
// lease lasts until the rows are settled. Its blocked keys, as this worker has loaded them, have not changed in the
// database as far as the worker knows.
func (o *Owned) MayPublish(lanes map[int16]*progress.Lane, rows []*outboxdb.Row) bool {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range rows {
		if l := lanes[r.Lane]; !l.Blocks.AreKnown() || !o.isUsable(o.of(l), now) {
			return false
		}
	}
	return true
}

// Changed returns the lanes whose blocks are unknown, or older than what an operator has changed.
func (o *Owned) Changed(lanes []*progress.Lane) (list []*progress.Lane) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range lanes {
		if h := o.of(l); !l.Blocks.AreKnown() || h != nil && l.Blocks.Change() < h.change {
			list = append(list, l)
		}
	}
	return list
}

// Keeps reports whether at least one of the lanes still belongs to this worker.
func (o *Owned) Keeps(lanes map[int16]*progress.Lane) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range lanes {
		if h := o.of(l); h != nil && !h.lost {
			return true
		}
	}
	return false
}

// Prove passes two numbers for each lane to the next renewal, which stores them for the statistics. All unsent rows
// up to the first number belong to paused tenants. All unsent rows up to the second one belong to transactions that
// are still open.
func (o *Owned) Prove(lanes []*progress.Lane, short progress.Shortcut) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range lanes {
		if h := o.of(l); h != nil {
			h.lease.PassedTo, h.lease.OpenTo = l.Passed, short.Reached(l.Short)
		}
	}
}

// Add adds a lane that was claimed.
func (o *Owned) Add(lease lanedb.Lease, until time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lanes[lease.Lane] = &holding{lane: progress.NewLane(lease), lease: lease, validUntil: until}
}

// count returns the number of lanes that this worker will keep. Lanes that it is about to give back do not count, or the
// coordinator would give back a further one at each beat.
func (o *Owned) count() int {
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
func (o *Owned) giveBackOne() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range o.lanes {
		if !h.surplus && !h.lost {
			h.surplus = true
			return
		}
	}
}

// Tidy removes lanes that are lost and lanes that are surplus. Only the worker calls it, between two batches: nothing is
// written to a lane that is gone from here. It returns the leases of the surplus ones, which have
// to be released. A surplus lane that is busy stays until the next time.
func (o *Owned) Tidy(busy func(*progress.Lane) bool) (surplus []lanedb.Lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for n, h := range o.lanes {
		if h.surplus && !h.lost { // a lost lane belongs to another projector already, so there is nothing to release
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

// Leases returns the leases that have to be renewed. A surplus lane is among them until it is given back.
func (o *Owned) Leases() (list []lanedb.Lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range o.lanes {
		if !h.lost {
			list = append(list, h.lease)
		}
	}
	return list
}

// Numbers returns the numbers of the lanes that are not lost.
func (o *Owned) Numbers() (list []int16) {
	for _, l := range o.Leases() {
		list = append(list, l.Lane)
	}
	return list
}

// renewed takes the answer to a renewal: the end of the leases, and the operators' counter of each lane that is still
// held. A lane without a counter is lost. It returns how many lanes the worker will keep.
func (o *Owned) renewed(until time.Time, changes map[int16]int64) (kept int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for n, h := range o.lanes {
		change, ok := changes[n]
		if !ok {
			h.lost = true // tidy removes it: the worker may be in a pass that still has the lane in its hands
			continue
		}
		// The worker reads the blocks again if the counter has grown, and can use a lane again whose lease was nearly over.
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

// drop forgets all lanes and returns their leases. It is called when no worker runs any more.
func (o *Owned) drop() []lanedb.Lease {
	out := o.Leases() // without lanes that are lost: they are another projector's
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.lanes)
	return out
}
