package projector

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/oncebox/oncebox/internal/lanedb"
)

// unsettled holds rows that the broker has confirmed, but whose settle in the database failed. The worker fetches
// nothing until they are settled: it would find the same rows and publish them again, once for each try. So there is
// never more of it than one batch and one probe.
//
// A settle that failed may have been carried out, because only its answer may have been lost. So the next try accepts
// that rows are gone already.
type unsettled struct {
	lanes map[int16]*lane
	fresh *out // rows of the log; nil: the rows are held ones

	held       []int64 // held rows of one key of one lane
	key        string
	generation int // the generation of the mark: a server that forgot numbers may have given them to other rows
}

// settleFresh writes down that the broker confirmed rows of the log. It returns the lanes that do not belong to this
// worker any more. After an error, the rows are kept in unsettled.
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

// writeDown moves rows out of the log first, and records the positions of the lanes second. It adds the lanes that do
// not belong to this worker any more to gone.
//
// The order matters if the process dies in between. A position beyond a row that is still in the log would count this
// row as published in its place, and the move would be lost. In this order, a row that was moved is simply not in the
// log any more.
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

// settleHeld settles held rows of one key that the broker has confirmed, and lifts the block if no row of the key is
// left. After an error, the rows are kept in unsettled, and the caller has to put the lane's blocks in doubt.
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

// owe keeps held rows that are confirmed and not settled.
func (w *worker) owe(l *lane, key string, sent []int64) {
	if len(sent) > 0 {
		w.unsettled = append(w.unsettled, unsettled{
			lanes: map[int16]*lane{l.lease.Lane: l}, held: sent, key: key, generation: w.generation,
		})
	}
}

// settleAgain tries to settle rows whose settle has failed before. It returns how many it has settled. If it returns
// an error, others are left.
func (w *worker) settleAgain(ctx context.Context) (settled int, err error) {
	ctx, cancel := w.r.begun(ctx)
	defer cancel()
	return w.settleOwed(ctx)
}

// settleOwed looks at the sequence first. The settle may have failed because the server crashed, and the server that
// answers now may have given the numbers to other rows. A settle by number would then remove rows that were never
// published. If so, or if the lanes belong to another projector, the debt is dropped, and the rows are published
// again.
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
		case !w.owns(u) || u.generation != now: // the rows are published once more, by this worker or another one
		case u.fresh != nil:
			n = u.fresh.rows()
			_, err = w.settleFresh(ctx, u.lanes, *u.fresh)
		default:
			for _, l := range u.lanes { // there is one lane
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

// settleHeldAgain settles held rows. If the blocks of the lane are unknown, it keeps the rows for the next pass:
// nothing of that lane is published until the blocks are loaded. If the fence refuses, the lane is lost, which
// [worker.owns] will find, or an operator has changed it, and the next pass tries again.
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

// owns reports whether at least one lane of these rows still belongs to this worker. The other lanes are left out by
// the fence of the write.
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

// owes reports whether confirmed rows of the lane still have to be settled.
func (w *worker) owes(l *lane) bool {
	return slices.ContainsFunc(w.unsettled, func(u unsettled) bool { return u.lanes[l.lease.Lane] == l })
}

// settleLast settles the rows that a worker still owes when it has stopped. If that fails, the next owner publishes
// them again.
func (w *worker) settleLast(ctx context.Context) {
	if _, err := w.settleOwed(ctx); err != nil && !errors.Is(err, lanedb.ErrFenced) {
		w.r.p.log.WarnContext(ctx, "oncebox: published rows could not be settled, they are published again", "error", err)
	}
}
