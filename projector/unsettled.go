package projector

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/oncebox/oncebox/internal/lanedb"
)

// unsettled are rows that the broker has confirmed and the database has not settled, because that failed. Until it has,
// the worker fetches nothing: it would find the rows once more and publish them once more, as often as it tries. So there
// is never more of it than one batch and one probe.
//
// That the settle failed says nothing about what the database did: the answer may have been lost. A row that is gone by
// the time of the next try is no error.
type unsettled struct {
	lanes map[int16]*lane
	fresh *out

	held       []int64 // of one key of one lane
	key        string
	generation int // of the mark: a server that forgot numbers may have given them to other rows
}

// settleFresh writes down that the broker confirmed rows. It returns the lanes that are not this worker's any more.
func (w *worker) settleFresh(ctx context.Context, lanes map[int16]*lane, o out) (lost []int16, err error) {
	gone := map[int16]bool{}
	if err := w.writeDown(ctx, lanes, o, gone); err != nil {
		w.unsettled = append(w.unsettled, unsettled{lanes: lanes, fresh: &o, generation: w.generation})
		return nil, err
	}
	for n := range gone {
		lost = append(lost, n)
		w.lost(ctx, lanes[n])
	}
	w.r.p.telemetry.published.Add(ctx, int64(o.rows()))
	return lost, nil
}

// writeDown first moves rows out of the log, then says which rows of the log are out. Lanes that are not this worker's any more are added to gone.
func (w *worker) writeDown(ctx context.Context, lanes map[int16]*lane, o out, gone map[int16]bool) error {
	if len(o.moved) > 0 {
		leases := leasesOf(lanes, o.moved)
		held, err := w.r.lanes.Moves.Settle(ctx, leases, o.moved)
		if err != nil {
			return err
		}
		for _, l := range leases {
			gone[l.Lane] = !held[l.Lane]
		}
	}
	var placed []lanedb.Placed
	for _, lease := range leasesOf(lanes, o.recorded()) {
		placed = append(placed, lanedb.Placed{Lease: lease, Position: lanes[lease.Lane].next(o)})
	}
	if len(placed) > 0 {
		held, err := w.r.lanes.Log.Record(ctx, placed)
		if err != nil {
			return err
		}
		for _, p := range placed {
			if n := p.Lease.Lane; held[n] {
				lanes[n].moveTo(p.Position)
			} else {
				gone[n] = true
			}
		}
	}
	maps.DeleteFunc(gone, func(_ int16, lost bool) bool { return !lost })
	return nil
}

// settleHeld settles held rows of one key that the broker confirmed. The lane's blocks are in doubt after an error.
func (w *worker) settleHeld(ctx context.Context, l *lane, key string, sent []int64) error {
	lifted, err := w.r.lanes.Held.SettleHeld(ctx, l.lease, l.loaded, key, sent)
	if err != nil {
		w.owe(l, key, sent)
		return err
	}
	if lifted {
		delete(l.blocks, key)
	}
	w.r.p.telemetry.published.Add(ctx, int64(len(sent)))
	return nil
}

func (w *worker) owe(l *lane, key string, sent []int64) {
	if len(sent) > 0 {
		w.unsettled = append(w.unsettled, unsettled{
			lanes: map[int16]*lane{l.lease.Lane: l}, held: sent, key: key, generation: w.generation,
		})
	}
}

// settleAgain tries to settle what could not be settled before. It returns how many rows that were; with an error, there
// are others left.
func (w *worker) settleAgain(ctx context.Context) (settled int, err error) {
	ctx, cancel := w.r.begun(ctx)
	defer cancel()
	return w.settleOwed(ctx)
}

// settleOwed looks at the sequence first: the settle may have failed because the server went, and the one that is there now may have
// given the numbers to other rows.
func (w *worker) settleOwed(ctx context.Context) (settled int, err error) {
	if len(w.unsettled) == 0 {
		return 0, nil
	}
	now, _, err := w.r.mark.latest(ctx, w.r.lanes.Log)
	if err != nil {
		return 0, err
	}
	all := w.unsettled
	w.unsettled = nil
	for i, u := range all {
		n := 0
		switch {
		case !w.owns(u) || u.generation != now: // they are published once more, here or elsewhere
		case u.fresh != nil:
			n = u.fresh.rows()
			_, err = w.settleFresh(ctx, u.lanes, *u.fresh)
		default:
			for _, l := range u.lanes { // it is one
				n, err = w.settleHeldAgain(ctx, l, u)
			}
		}
		if err != nil {
			w.unsettled = append(w.unsettled, all[i+1:]...)
			return settled, err
		}
		settled += n
	}
	return settled, nil
}

// settleHeldAgain waits with rows of a lane whose blocks are unknown: nothing of that lane is published until they have been
// loaded. A fence that refuses says that the lane is lost, which [worker.owns] will know, or that an operator changed it
// since.
func (w *worker) settleHeldAgain(ctx context.Context, l *lane, u unsettled) (settled int, err error) {
	if l.loaded < 0 {
		w.owe(l, u.key, u.held)
		return 0, nil
	}
	if err := w.settleHeld(ctx, l, u.key, u.held); err != nil {
		return 0, w.forget(ctx, l, err)
	}
	return len(u.held), nil
}

// owns tells whether a lane of these rows is still this worker's.
func (w *worker) owns(u unsettled) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, l := range u.lanes {
		if w.lanes[n] == l && !l.lost {
			return true
		}
	}
	return false
}

// owes tells whether rows of the lane are still to be settled.
func (w *worker) owes(l *lane) bool {
	return slices.ContainsFunc(w.unsettled, func(u unsettled) bool { return u.lanes[l.lease.Lane] == l })
}

// settleLast ends what a worker that has stopped still owes.
func (w *worker) settleLast(ctx context.Context) {
	if _, err := w.settleOwed(ctx); err != nil && !errors.Is(err, lanedb.ErrFenced) {
		w.r.p.log.WarnContext(ctx, "oncebox: published rows could not be settled, they are published again", "error", err)
	}
}
