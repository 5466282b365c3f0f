package projector

import (
	"context"
	"errors"
	"slices"

	"github.com/oncebox/oncebox/projector/internal/progress"
	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// prepare returns the lanes that a batch may be taken from. For each of them the worker then knows the position, the
// blocked keys, and that both are those of the server that answers now.
//
// The server is looked at before the positions are read. If it crashes in between, locate finds another incarnation,
// and the pass ends. If it crashes after that, the statements of the batch compare the incarnation and do nothing.
func (w *worker) prepare(ctx context.Context) ([]*progress.Lane, error) {
	ctx, cancel := w.limit.bounded(ctx)
	defer cancel()
	if err := w.tidy(ctx); err != nil {
		return nil, err
	}
	lanes := w.owned.Ready()
	if len(lanes) == 0 {
		*w.held.due = schedule.DueTime{} // no lane can be looked at, so nothing is known about the time when they come back
		return nil, nil
	}
	now, incarnation, err := w.server.mark.observe(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range w.owned.All() {
		// Lanes that are not ready are among them: their positions are void too, and they may be ready in the next pass.
		if w.server.generation != now || l.Located && l.Lease.Incarnation != incarnation { // the position is that of a server that has crashed since
			l.StartAnew()
		}
	}
	w.server.generation = now
	if slices.ContainsFunc(lanes, func(l *progress.Lane) bool { return !l.Located }) {
		if err := w.locate(ctx, lanes, incarnation); err != nil {
			return nil, err
		}
	}
	// The numbers are those of the last pass. The position was compared with the server just now, so they hold.
	_, short := w.server.mark.now()
	w.owned.Prove(lanes, short)
	if stale := w.owned.Changed(lanes); len(stale) > 0 {
		err = w.load(ctx, stale)
	}
	return lanes, err
}

// errAnotherServer ends a pass when its statements have reached two servers.
var errAnotherServer = errors.New("projector: the database server has restarted after a crash, or a standby has taken over, a moment ago")

// locate reads the positions of lanes that this worker has not read yet. These are lanes that are new, and lanes
// whose position became void.
func (w *worker) locate(ctx context.Context, lanes []*progress.Lane, incarnation string) error {
	var unknown []int16
	for _, l := range lanes {
		if !l.Located {
			unknown = append(unknown, l.Lease.Lane)
		}
	}
	at, on, err := w.db.Log.Positions(ctx, unknown)
	if err != nil {
		return err
	}
	if on != incarnation { // the mark was looked at on one server, and the positions were read on another
		return errAnotherServer
	}
	for _, l := range lanes {
		if position, ok := at[l.Lease.Lane]; ok && !l.Located {
			l.StartAt(position, incarnation)
		}
	}
	return nil
}

// tidy forgets lanes that are lost, and gives surplus lanes back. No batch is under way here, so nothing is written
// to a lane after it is free. A surplus lane stays until its probe has ended and its confirmed rows are settled: the
// next owner would publish them again.
func (w *worker) tidy(ctx context.Context) error {
	surplus := w.owned.Tidy(func(l *progress.Lane) bool { return w.prober.probes(l) || w.settle.owes(l) })
	if len(surplus) == 0 {
		return nil
	}
	ctx, cancel := w.limit.begun(ctx)
	defer cancel()
	w.log.InfoContext(ctx, "oncebox: lanes given back", "projector", w.cfg.Name, "lanes", len(surplus))
	return w.db.Leases.Release(ctx, surplus)
}

// load reads the blocks of lanes that are new, that an operator has changed, or that are in doubt, see forget.
//
// A change that an operator makes after the read is not missed. It raises the lane's counter, and the next renewal reports that. Until then,
// writes to held rows compare the counter and are refused, and lanedb.Moves.Hold decides by the blocks that it finds in the database.
func (w *worker) load(ctx context.Context, stale []*progress.Lane) error {
	*w.held.due = schedule.DueTime{} // an operator may have made something due
	loaded, err := w.db.Held.Blocks(ctx, numbersOf(stale))
	if err != nil {
		return err
	}
	for _, l := range stale {
		l.LoadBlocks(loaded[l.Lease.Lane])
	}
	return nil
}
