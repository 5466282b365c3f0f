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

// worker publishes the rows of its lanes. Only one goroutine runs its passes, so a lane has at most one batch on its
// way. That is half of the promise that rows of one key stay in order; the lease is the other half.
//
// The mutex protects lanes and heard, because the coordinator, the listener and the stores write to them. All other
// fields belong to the goroutine of the passes.
type worker struct {
	r *relay

	mu    sync.Mutex
	lanes map[int16]*lane
	heard outboxdb.LaneSet // lanes in which a commit was reported since the last fetch began

	wake       chan struct{} // has a token if rows may have come: the next rest ends at once
	pause      time.Duration // the length of the last idle pause
	more       bool          // the pass has left rows, and no notification will come for them
	looked     time.Time     // when the last fetch from all lanes began
	due        dueTime
	stepped    pulse
	backlogged backlogged
	stay       lanedb.Filter // the topics and tenants that are left alone, as of the last look
	silence    silence
	trial      *probe      // the probe that is on its way; nil: there is none
	unsettled  []unsettled // confirmed rows whose settle failed
	aloneUntil time.Time   // until then it is taken for granted that only tenants with a backlog have rows
	generation int         // the generation of the mark that the cursors rest on, see watermark.generation
	few        bool        // the last fetch of heads brought few rows
}

// step is one turn of the loop: a pass, and a pause if nothing is left to do.
//
// After a pass that moved rows, the next one follows at once if rows were left behind, or if NOTIFY does not work: then nobody would
// wake the worker for rows that came meanwhile. Otherwise the worker rests, and the next commit ends the rest.
func (w *worker) step(ctx context.Context) error {
	n, err := w.pass(ctx)
	// The step counts as progress, see Projector.Progress, unless it moved nothing because topics are left out that
	// gave no answer.
	if err == nil && (n > 0 || len(w.silence.avoided) == 0 && !w.silence.isQuiet()) {
		w.stepped.mark()
	}
	if n == 0 {
		w.silence.avoided = nil // no other topic has rows, so the silent ones are tried again
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
	if w.silence.isQuiet() { // rows that are due are not sent either
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

// rest waits for d, or until hear has reported a commit.
func (w *worker) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		// Not by nudge: its token would end the next rest at once, and the pause would never grow.
		w.mu.Lock()
		w.heard = outboxdb.AllLanes
		w.mu.Unlock()
	case <-w.wake:
		w.pause = 0
	case <-ctx.Done():
	}
}

// nudge makes the worker look at all its lanes, at once or after the pass under way.
func (w *worker) nudge() { w.hear(outboxdb.AllLanes) }

// hear makes the worker look at the given lanes, as far as it holds them.
func (w *worker) hear(lanes outboxdb.LaneSet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteHeard(lanes)
}

// noteHeard is hear for callers that have the lock.
//
// No commit is missed, whenever it is reported. A worker that rests is woken by the token. A worker in a pass whose
// fetch has not begun takes the lanes with inQuestion, and the token costs one pass more. If the fetch has begun, it
// may not see the rows: the lanes stay in heard, and the token starts another pass. The channel holds one token,
// because one pass serves any number of commits.
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

// inQuestion returns the lanes in which rows may be: a commit was reported there, or the last pass left rows there. A
// fetch from a lane costs the database the same whether the lane has rows or not, so lanes without news are left out.
//
// It returns all lanes if NOTIFY does not work, and once per Config.SleepBusy in any case: not every writer sends a
// notification.
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
//
// The order of its parts matters. First comes what is owed: the end of a probe, and rows that are published but not
// settled; a fetch before that would find these rows again and publish them twice. Then come fresh rows, then keys
// that an operator has released, then held rows that are due. A part that moves something or fails may have put lanes
// in doubt, so the lanes are checked again between the parts.
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
	if ctx.Err() != nil { // stopped, and that is not an error
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

// prepare returns the lanes that a batch may be taken from. For each of them the worker then knows the position, the
// blocked keys, and that both are those of the server that answers now.
//
// The server is looked at before the positions are read. If it crashes in between, locate finds another incarnation,
// and the pass ends. If it crashes after that, the statements of the batch compare the incarnation and do nothing.
func (w *worker) prepare(ctx context.Context) ([]*lane, error) {
	ctx, cancel := w.r.bounded(ctx)
	defer cancel()
	if err := w.tidy(ctx); err != nil {
		return nil, err
	}
	lanes := w.ready()
	if len(lanes) == 0 {
		w.due = dueTime{} // no lane can be looked at, so nothing is known about the time when they come back
		return nil, nil
	}
	now, incarnation, err := w.r.mark.latest(ctx, w.r.lanes.Log)
	if err != nil {
		return nil, err
	}
	for _, l := range w.mine() {
		if w.generation != now || l.located && l.lease.Incarnation != incarnation { // the position is that of a server that has crashed since
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

// locate reads the positions of lanes that this worker has not read yet. These are lanes that are new, and lanes
// whose position became void.
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

// isSameServer reports whether the cursors of this pass still hold. A pass may take long, so it looks at the sequence
// again, unless that was done a moment before. If the cursors do not hold, the next pass comes at once and begins at
// the heads of the lanes.
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

// prove passes two numbers for each lane to the next renewal, which stores them for the statistics. All unsent rows
// up to the first number belong to paused tenants. All unsent rows up to the second one belong to transactions that
// are still open.
func (w *worker) prove(lanes []*lane) {
	short := w.r.mark.shortcut()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range lanes {
		l.proven, l.openTo = l.passed, l.short.reached(short)
	}
}

// serve publishes a batch of fresh rows. There are three ways to find them:
//
//   - past, while topics are in trouble or tenants are paused: it searches the lanes for rows behind theirs.
//   - late, when a shortcut has ended: it searches the stretch that the fetches have jumped over.
//   - fresh, in all other cases: it fetches from the heads of the lanes.
//
// Then tenants without a backlog get their turn, see fair.
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

// past publishes a batch of rows that may pass the rows that stay. It also starts a probe if the pause of a topic is
// over.
func (w *worker) past(ctx context.Context, group []*lane) (moved int, err error) {
	p, err := w.pick(ctx, group, w.stay, func(l *lane) *skip { return &l.topics })
	if err != nil {
		return p.moved, err
	}
	for _, l := range group {
		l.more = true // the heads of the lanes were not fetched, so they are in question afterwards
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
		moved = max(moved, 1) // there is more to look at: no pause
	}
	w.more = w.more || moved > 0
	return moved, err
}

// tidy forgets lanes that are lost, and gives surplus lanes back. No batch is under way here, so nothing is written
// to a lane after it is free. A surplus lane stays until its probe has ended and its confirmed rows are settled: the
// next owner would publish them again.
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

// ready returns the lanes whose leases last long enough for a batch, in order of their numbers. It includes lanes
// whose blocks have to be read first, because load comes next.
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

// stillReady returns the lanes whose leases last long enough for a batch that begins now, without lanes whose blocks
// are in doubt since an earlier part of this pass. One lane in doubt would be enough to make publish send nothing
// from any lane.
func (w *worker) stillReady(lanes []*lane) []*lane {
	return slices.DeleteFunc(w.usable(lanes), func(l *lane) bool { return l.loaded < 0 })
}

// usable takes the lock, because the coordinator renews leases at the same time.
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

// load reads the blocks of lanes that are new, that an operator has changed, or that are in doubt, see forget.
//
// A change that an operator makes after the read is not missed. It raises the lane's counter, and the next renewal reports that. Until then,
// writes to held rows compare the counter and are refused, and lanedb.Moves.Hold decides by the blocks that it finds in the database.
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
		l.held = heldSkip{} // a row that an operator has released may be older than the rows that the search has passed
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

// forget marks the blocks of a lane as unknown after a write that did not succeed. The next pass loads them again
// before it fetches.
//
// [lanedb.ErrFenced] says that the lane belongs to another projector now, or that an operator changed it. Both are
// expected, so forget returns nil. It returns any other error. Such an error leaves open what the database did: the
// statement may have been committed and its answer lost. A worker that goes on with the old blocks would publish rows
// behind a row that is held, or hold rows behind a block that is gone.
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

// take adds a lane that was claimed.
func (w *worker) take(l *lane) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lanes[l.lease.Lane] = l
}

// count returns the number of lanes that this worker will keep.
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

// giveBackOne marks a lane as surplus. The worker itself gives it back between two batches, see tidy.
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

// leases returns the leases that have to be renewed. A surplus lane is among them until it is given back.
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

// renewed takes the answer to a renewal: the end of the leases, and the operators' counter of each lane that is still
// held. A lane without a counter is lost. It returns how many lanes the worker will keep.
func (w *worker) renewed(until time.Time, changes map[int16]int64) (held int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, l := range w.lanes {
		change, ok := changes[n]
		if !ok {
			l.lost = true
			continue
		}
		if change > l.change || !l.usable(time.Now(), w.r.p.cfg.PublishTimeout) { // the passes left it out until now, so rows may wait
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
