package projector

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// worker publishes the rows of its lanes. One goroutine is in a pass at a time, so a lane has one batch on its way.
type worker struct {
	r *relay

	mu    sync.Mutex
	lanes map[int16]*lane
	heard outboxdb.LaneSet // lanes in which rows may be, since the last fetch began

	wake       chan struct{}
	pause      time.Duration // of the last idle poll
	more       bool          // the pass has left something to do that nobody will tell of
	looked     time.Time     // when a fetch from all lanes began last
	due        dueTime
	stepped    pulse
	backlogged backlogged
	stay       lanedb.Filter // what is left alone, as of the last look
	silence    silence
	trial      *probe // on its way
	unsettled  []unsettled
	aloneUntil time.Time // only tenants with a backlog have rows, as of a moment before
	generation int       // of the mark that the cursors rest on
	few        bool      // the last fetch of heads brought few rows
}

// step is one turn of the loop: a pass, and a pause if nothing is left to do.
func (w *worker) step(ctx context.Context) error {
	n, err := w.pass(ctx)
	// Not: nothing but what was left out because no answer came.
	if err == nil && (n > 0 || len(w.silence.avoided) == 0 && !w.silence.isQuiet()) {
		w.stepped.mark()
	}
	if n == 0 {
		w.silence.avoided = nil // there are no others
	}
	if err != nil || n > 0 {
		w.pause = 0
	}
	if err != nil || n > 0 && (w.more || !w.r.hears.Load()) {
		return err
	}
	untilDue, err := w.untilDue(ctx)
	if err != nil {
		return err
	}
	if w.silence.isQuiet() { // what is due is not sent either
		w.rest(ctx, time.Until(w.silence.quiet))
	} else {
		w.rest(ctx, min(w.longerPause(), untilDue))
	}
	return nil
}

// longerPause doubles the pause, from SleepBusy up to SleepIdle, and returns it.
func (w *worker) longerPause() time.Duration {
	w.pause = min(max(2*w.pause, w.r.p.cfg.SleepBusy), w.r.p.cfg.SleepIdle)
	return w.pause
}

// rest waits for d, or until something is heard of.
func (w *worker) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		// Not nudge: its token would end the next rest at once, and the pause would never grow.
		w.mu.Lock()
		w.heard = outboxdb.AllLanes
		w.mu.Unlock()
	case <-w.wake:
		w.pause = 0
	case <-ctx.Done():
	}
}

// nudge has the worker look at all its lanes, at once or after the pass under way.
func (w *worker) nudge() { w.hear(outboxdb.AllLanes) }

// hear has it look at those of the lanes that it holds.
func (w *worker) hear(lanes outboxdb.LaneSet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteHeard(lanes)
}

// noteHeard is hear for callers that have the lock. A worker that is in a pass may have fetched already: the lanes stay named, and the token
// makes another pass begin.
func (w *worker) noteHeard(lanes outboxdb.LaneSet) {
	if lanes != outboxdb.AllLanes && !w.holds(lanes) {
		return
	}
	w.heard |= lanes
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *worker) holds(lanes outboxdb.LaneSet) bool {
	for n := range w.lanes {
		if lanes.Has(n) {
			return true
		}
	}
	return false
}

// inQuestion returns those of the lanes in which rows may be: in which commits were heard of, or something was left. A fetch from a lane
// costs the database the same whether there is something or not. Now and then they are all of them, because not every writer says
// that it has committed.
func (w *worker) inQuestion(group []*lane) []*lane {
	now := time.Now()
	w.mu.Lock()
	heard := w.heard
	w.heard = 0
	w.mu.Unlock()
	if heard == outboxdb.AllLanes || !w.r.hears.Load() || now.Sub(w.looked) >= w.r.p.cfg.SleepBusy {
		w.looked = now
		return group
	}
	return slices.DeleteFunc(slices.Clone(group), func(l *lane) bool { return !l.more && !heard.Has(l.lease.Lane) })
}

// pass goes once over all lanes. It returns how many rows it moved. When ctx is done, the batch under way is finished
// and no other is begun.
func (w *worker) pass(ctx context.Context) (moved int, err error) {
	w.more = false
	if moved, err = w.probed(ctx); err != nil {
		return moved, err
	}
	lanes, err := w.prepare(ctx)
	if err != nil {
		return moved, err
	}
	n, err := w.settleAgain(ctx)
	if moved += n; err != nil || len(lanes) == 0 || w.silence.isQuiet() {
		return moved, err
	}
	n, err = w.serve(ctx, lanes)
	if moved += n; err != nil {
		return moved, err
	}
	w.forgetBacklogged(lanes)
	if ctx.Err() != nil { // told to stop, which is no failure
		return moved, nil //nolint:nilerr // see above
	}
	if lanes = w.stillReady(lanes); len(lanes) == 0 {
		return moved, nil
	}
	n, err = w.release(ctx, lanes)
	if moved += n; err != nil {
		return moved, err
	}
	if w.due.isToBeChecked(w.r.p.cfg.SleepBusy) {
		began := time.Now()
		n, err := w.held(ctx, lanes)
		moved += n
		if n > 0 || err != nil {
			w.due, w.more = dueTime{}, true
			return moved, err
		}
		w.due.checked(began)
	}
	return moved, nil
}

// prepare returns the lanes that a batch may be taken from, with all that the batch rests on.
func (w *worker) prepare(ctx context.Context) ([]*lane, error) {
	ctx, cancel := w.r.bounded(ctx)
	defer cancel()
	if err := w.tidy(ctx); err != nil {
		return nil, err
	}
	lanes := w.ready()
	if len(lanes) == 0 {
		w.due = dueTime{} // unknown when they come back
		return nil, nil
	}
	now, incarnation, err := w.r.mark.latest(ctx, w.r.lanes.Log)
	if err != nil {
		return nil, err
	}
	for _, l := range w.mine() {
		if w.generation != now || l.located && l.lease.Incarnation != incarnation { // it was located on a server that has crashed since
			l.startAnew()
		}
	}
	w.generation = now
	if err := w.locate(ctx, lanes, incarnation); err != nil {
		return nil, err
	}
	w.prove(lanes)
	return lanes, w.load(ctx, lanes)
}

// errAnotherServer ends a pass when its statements have reached two servers.
var errAnotherServer = errors.New("projector: the server has crashed, or another one has taken over, a moment ago")

// locate reads where lanes are of which this worker does not know it.
func (w *worker) locate(ctx context.Context, lanes []*lane, incarnation string) error {
	var unknown []int16
	for _, l := range lanes {
		if !l.located {
			unknown = append(unknown, l.lease.Lane)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	at, on, err := w.r.lanes.Log.Positions(ctx, unknown)
	if err != nil {
		return err
	}
	if on != incarnation {
		return errAnotherServer
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range lanes {
		if position, ok := at[l.lease.Lane]; ok && !l.located {
			l.startAt(position, incarnation)
		}
	}
	return nil
}

// isSameServer looks at the sequence unless that was done a moment before, because a pass may take long. It tells whether the
// cursors still hold. If not, the next pass comes at once and begins at the heads.
func (w *worker) isSameServer(ctx context.Context) (bool, error) {
	now, _, err := w.r.mark.latest(ctx, w.r.lanes.Log)
	if err != nil {
		return false, err
	}
	if now != w.generation {
		w.nudge()
	}
	return now == w.generation, nil
}

// prove has the next renewal store how far all rows of the lanes are of paused tenants, and how far they are of open transactions.
func (w *worker) prove(lanes []*lane) {
	short := w.r.mark.shortcut()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range lanes {
		l.proven, l.openTo = l.passed, l.short.reached(short)
	}
}

// serve publishes a batch: from their heads, or, while topics are in trouble or tenants are paused, past their rows.
func (w *worker) serve(ctx context.Context, group []*lane) (moved int, err error) {
	start := time.Now()
	if stay := w.staying(); len(stay.Topics)+len(stay.Tenants) > 0 {
		moved, err = w.past(ctx, group)
	} else if back := strayed(group, w.r.mark.shortcut()); len(back) > 0 {
		moved, err = w.late(ctx, back)
	} else {
		moved, err = w.fresh(ctx, w.inQuestion(group))
	}
	if err != nil {
		return moved, err
	}
	n, err := w.fair(ctx, group, time.Since(start))
	w.more = w.more || n > 0
	return moved + n, err
}

// past publishes a batch past the rows that stay, and has one of a topic tried whose pause is over.
func (w *worker) past(ctx context.Context, group []*lane) (moved int, err error) {
	p, err := w.pick(ctx, group, w.stay, func(l *lane) *skip { return &l.topics })
	if err != nil {
		return p.moved, err
	}
	for _, l := range group {
		l.more = true // heads are not looked at
		l.full = p.beyond[l.lease.Lane]
		if len(w.stay.Topics) == 0 {
			l.passed = l.topics.to
		}
	}
	w.backlogged.leads(p.rows, w.r.p.cfg.BatchSize)
	beyond, err := w.far(ctx, group)
	if moved = p.moved + beyond; err != nil {
		return moved, err
	}
	n, err := w.probe(ctx, group)
	if moved += n; p.more {
		moved = max(moved, 1) // no reason to pause
	}
	w.more = w.more || moved > 0
	return moved, err
}

// tidy forgets lanes that are lost and gives back those that are surplus. No batch is under way here.
func (w *worker) tidy(ctx context.Context) error {
	var surplus []lanedb.Lease
	w.mu.Lock()
	for n, l := range w.lanes {
		if l.surplus && !l.lost {
			if w.probes(l) || w.owes(l) {
				continue // the next time
			}
			surplus = append(surplus, l.lease)
		}
		if l.surplus || l.lost {
			delete(w.lanes, n)
		}
	}
	w.mu.Unlock()
	if len(surplus) == 0 {
		return nil
	}
	ctx, cancel := w.r.begun(ctx)
	defer cancel()
	w.r.p.log.InfoContext(ctx, "oncebox: lanes given back", "projector", w.r.p.cfg.Name, "lanes", len(surplus))
	return w.r.lanes.Leases.Release(ctx, surplus)
}

// ready returns the lanes whose leases last long enough for a batch, in order. Those whose blocks are not those of the
// database are returned too; load comes next.
func (w *worker) ready() []*lane {
	out := w.usable(w.mine())
	slices.SortFunc(out, func(a, b *lane) int { return int(a.lease.Lane) - int(b.lease.Lane) })
	return out
}

func (w *worker) mine() []*lane {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.lanes))
}

// stillReady returns those of the lanes whose leases last long enough for a batch that begins now, and whose blocks were
// not put in doubt by what came before in this pass: publish sends nothing of any lane if one of them is in doubt.
func (w *worker) stillReady(lanes []*lane) []*lane {
	return slices.DeleteFunc(w.usable(lanes), func(l *lane) bool { return l.loaded < 0 })
}

func (w *worker) usable(lanes []*lane) []*lane {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*lane
	for _, l := range lanes {
		if l.usable(now, w.r.p.cfg.PublishTimeout) {
			out = append(out, l)
		}
	}
	return out
}

// load reads the blocks of lanes that are new, that an operator has changed, or that this worker is not sure about.
func (w *worker) load(ctx context.Context, lanes []*lane) error {
	stale := map[int16]*lane{}
	var numbers []int16
	w.mu.Lock()
	for _, l := range lanes {
		if l.loaded < 0 || l.loaded < l.change {
			stale[l.lease.Lane] = l
			numbers = append(numbers, l.lease.Lane)
		}
	}
	w.mu.Unlock()
	if len(stale) == 0 {
		return nil
	}
	w.due = dueTime{} // an operator may have made something due
	loaded, err := w.r.lanes.Held.Blocks(ctx, numbers)
	if err != nil {
		return err
	}
	for n, l := range stale {
		lb := loaded[n]
		l.more = true
		l.held = heldSkip{} // what an operator lets go may be older than what was passed
		l.loaded, l.blocks, l.stalled = lb.Change, map[string]string{}, nil
		for _, b := range lb.Blocks {
			l.blocks[b.Key] = b.State
			if b.Stalled && b.State != stateDead {
				l.stalled = append(l.stalled, b.Key)
			}
		}
	}
	return nil
}

// forget is what follows a write that did not return well: this worker does not know the lane's blocks any more, and the
// next pass loads them again before it fetches.
//
// An [lanedb.ErrFenced] says that the lane is somebody else's or that an operator changed it; that is no failure. Any
// other error is, and it leaves open what the database did: the statement may have been committed and its answer lost.
// To go on with the blocks as they were before would publish what follows a row that is held, or hold rows behind a
// block that is gone.
func (w *worker) forget(ctx context.Context, l *lane, err error) error {
	if err == nil {
		return nil
	}
	l.loaded = -1
	if !errors.Is(err, lanedb.ErrFenced) {
		return err
	}
	w.r.p.telemetry.fenced.Add(ctx, 1)
	return nil
}

func (w *worker) take(l *lane) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lanes[l.lease.Lane] = l
}

func (w *worker) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, l := range w.lanes {
		if !l.surplus && !l.lost {
			n++
		}
	}
	return n
}

func (w *worker) giveBackOne() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.lanes {
		if !l.surplus && !l.lost {
			l.surplus = true
			return
		}
	}
}

// leases returns the leases that are to be renewed: a surplus lane stays ours until it is given back.
func (w *worker) leases() []lanedb.Lease {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []lanedb.Lease
	for _, l := range w.lanes {
		if !l.lost {
			lease := l.lease
			lease.PassedTo, lease.OpenTo = l.proven, l.openTo
			out = append(out, lease)
		}
	}
	return out
}

func (w *worker) numbers() []int16 {
	var out []int16
	for _, l := range w.leases() {
		out = append(out, l.Lane)
	}
	return out
}

// renewed takes the answer to a renewal. It returns how many lanes are held.
func (w *worker) renewed(until time.Time, changes map[int16]int64) (held int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, l := range w.lanes {
		change, ok := changes[n]
		if !ok {
			l.lost = true
			continue
		}
		if change > l.change || !l.usable(time.Now(), w.r.p.cfg.PublishTimeout) { // passed over until now: rows may wait
			w.noteHeard(outboxdb.AllLanes)
		}
		l.change, l.validUntil = max(change, l.change), until
		if !l.surplus {
			held++
		}
	}
	return held
}

// drop forgets all lanes and returns their leases.
func (w *worker) drop() []lanedb.Lease {
	out := w.leases()
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.lanes)
	return out
}
