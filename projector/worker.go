package projector

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/projector/internal/leases"
	"github.com/oncebox/oncebox/projector/internal/progress"
	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// worker publishes the rows of its lanes. Only one goroutine runs its passes, so a lane has at most one batch on its
// way. That is half of the promise that rows of one key stay in order; the lease is the other half.
//
// Its parts are named after what they do, and stand on each other in this order:
//
//   - owned, server and silence are what all parts look at: the lanes and their leases, the server on which the
//     positions rest, and the topics that gave no answer.
//   - send and settle take a batch to its end. All rows are handed over by the one publisher.
//   - search, prober, held and late find rows that a fetch from the heads does not bring.
//
// All of it belongs to the goroutine of the passes, so nothing here needs a lock. The exceptions are owned, which has
// its own, and the publication of a probe, which touches no field.
type worker struct {
	cfg   *Config
	db    lanedb.Lanes
	hears *atomic.Bool // the connection for NOTIFY is up
	limit limit
	log   *slog.Logger

	owned   *leases.Owned
	server  *server
	silence *schedule.Silence

	send   *sender
	settle *settler
	search *searcher
	prober *prober
	held   *heldRows
	late   *catchUp

	stepped pulse
	pause   time.Duration // the length of the last idle pause
	more    bool          // the pass has left rows, and no notification will come for them
	looked  time.Time     // when the last fetch from all lanes began
}

// turn is one turn of the loop: a pass, and a pause if nothing is left to do.
//
// After a pass that moved rows, the next one follows at once if rows were left behind, or if NOTIFY does not work: then nobody would
// wake the worker for rows that came meanwhile. Otherwise the worker rests, and the next commit ends the rest.
func (w *worker) turn(ctx context.Context) error {
	w.silence.Turn()
	n, err := w.pass(ctx)
	// The turn counts as progress, see Projector.Progress, unless it moved nothing because topics are left out that
	// gave no answer.
	if err == nil && (n > 0 || len(w.silence.Avoided) == 0 && !w.silence.IsQuiet()) {
		w.stepped.mark()
	}
	if n == 0 {
		w.silence.Avoided = nil // no other topic has rows, so the silent ones are tried again
	}
	if err != nil || n > 0 {
		w.pause = 0
	}
	if err != nil || n > 0 && (w.more || !w.hears.Load()) {
		return err
	}
	untilDue, err := w.held.untilDue(ctx)
	if err != nil {
		return err
	}
	if w.silence.IsQuiet() { // rows that are due are not sent either
		w.rest(ctx, time.Until(w.silence.Quiet))
	} else {
		w.rest(ctx, min(w.longerPause(), untilDue))
	}
	return nil
}

// longerPause doubles the pause, from SleepBusy up to SleepIdle, and returns it.
func (w *worker) longerPause() time.Duration {
	w.pause = min(max(2*w.pause, w.cfg.SleepBusy), w.cfg.SleepIdle)
	return w.pause
}

// rest waits for d, or until a commit is reported.
func (w *worker) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		// Without a token: it would end the next rest at once, and the pause would never grow.
		w.owned.LookAtAll()
	case <-w.owned.Wake:
		w.pause = 0
	case <-ctx.Done():
	}
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
	w.search.begin()
	if p := w.prober.ended(); p != nil {
		if moved, err = w.prober.probed(ctx, p); err != nil {
			return moved, err
		}
	}
	lanes, err := w.prepare(ctx)
	if err != nil {
		return moved, err
	}
	n, err := w.settle.settleAgain(ctx) // after prepare, which loads the blocks that a settle of held rows needs
	if moved += n; err != nil || len(lanes) == 0 || w.silence.IsQuiet() {
		return moved, err
	}
	n, err = w.serve(ctx, lanes)
	if moved += n; err != nil {
		return moved, err
	}
	w.search.forgetBacklogged()
	if ctx.Err() != nil { // stopped, and that is not an error
		return moved, nil //nolint:nilerr // see above
	}
	if lanes = w.owned.StillReady(lanes); len(lanes) == 0 {
		return moved, nil
	}
	n, err = w.held.release(ctx, lanes)
	if moved += n; err != nil {
		return moved, err
	}
	w.more = w.more || n > 0 // rows of released keys may be due, or in the lanes
	if w.held.due.IsToBeChecked(w.cfg.SleepBusy) {
		began := time.Now()
		n, err := w.held.held(ctx, lanes)
		moved += n
		if n > 0 || err != nil { // the time of the next row that is due is another one now, or unknown
			*w.held.due, w.more = schedule.DueTime{}, true
			return moved, err
		}
		w.held.due.Checked(began)
	}
	return moved, nil
}

// serve publishes a batch of fresh rows. There are three ways to find them:
//
//   - past, while topics are in trouble or tenants are paused: it searches the lanes for rows behind theirs.
//   - late, when a shortcut has ended: it searches the stretch that the fetches have jumped over.
//   - fresh, in all other cases: it fetches from the heads of the lanes.
//
// Then the tenants that wait behind the backlog of another one get their turns, see fair.
func (w *worker) serve(ctx context.Context, group []*progress.Lane) (moved int, err error) {
	start := time.Now()
	_, short := w.server.mark.now()
	if stay := w.search.staying(); len(stay.Topics)+len(stay.Tenants) > 0 {
		moved, err = w.past(ctx, group)
	} else if back := progress.Strayed(group, short); len(back) > 0 {
		w.more = true
		moved, err = w.late.late(ctx, back)
	} else {
		moved, err = w.fresh(ctx, w.inQuestion(group))
	}
	if err != nil || len(w.search.backlogged.Tenants) == 0 {
		return moved, err
	}
	n, err := w.search.fair(ctx, group, time.Since(start))
	w.more = w.more || n > 0
	return moved + n, err
}

// fresh fetches, publishes and settles one batch from the heads of the lanes.
//
// It reads the mark and the shortcut before the fetch begins. Only then all rows below the mark are visible to the
// fetch, so a lane whose rows have all left is done up to the mark. A mark that is read afterwards could be beyond a
// row that the fetch did not see yet, and that row would never be published.
//
// A lane is in question (more) from the start, and only a batch that ends well takes that back.
func (w *worker) fresh(ctx context.Context, group []*progress.Lane) (moved int, err error) {
	// A batch that has begun is finished: rows that the broker has are settled even if the program is stopped
	// meanwhile.
	ctx, cancel := w.limit.begun(ctx)
	defer cancel()

	if len(group) == 0 { // no lane is in question
		return 0, nil
	}
	byLane := map[int16]*progress.Lane{}
	for _, l := range group {
		byLane[l.Lease.Lane], l.More = l, true // until the batch has ended
	}
	low, short := w.server.mark.now() // before the fetch begins, see progress.Watermark
	rows, sure, err := w.send.fetch.fetchHeads(ctx, byLane, group, short)
	if err != nil {
		return 0, err
	}
	if !sure {
		progress.NoteFetched(group, progress.NewBatch(byLane, w.send.rules))
		w.more, err = w.server.mark.lookAgain(ctx, short)
		if w.more {
			moved = 1 // the shortcut has ended: no pause
		}
		for _, l := range group {
			l.More = w.more || err != nil
		}
		return moved, err
	}
	w.search.backlogged.Leads(rows, w.cfg.BatchSize)
	b := progress.NewBatch(byLane, w.send.rules)
	b.Low, b.Short = low, short
	// The rows are the heads of their lanes, so the position of a lane may move over them.
	for n := range byLane {
		b.InTurn[n] = true
	}
	_, err = w.send.deliver(ctx, b, rows)
	progress.NoteFetched(group, b)
	w.more = len(b.Left) > 0 || slices.ContainsFunc(group, func(l *progress.Lane) bool { return l.Full })
	if err != nil {
		return b.Moved, err
	}
	for _, l := range group {
		l.More = l.Full || b.Left[l.Lease.Lane]
	}
	b.Advance(group)
	return b.Moved, nil
}

// inQuestion returns the lanes in which rows may be: a commit was reported there, or the last pass left rows there. A
// fetch from a lane costs the database the same whether the lane has rows or not, so lanes without news are left out.
//
// It returns all lanes if NOTIFY does not work, and once per Config.SleepBusy in any case: not every writer sends a
// notification.
func (w *worker) inQuestion(group []*progress.Lane) []*progress.Lane {
	now := time.Now()
	heard := w.owned.TakeHeard()
	if heard == outboxdb.AllLanes || !w.hears.Load() || now.Sub(w.looked) >= w.cfg.SleepBusy {
		w.looked = now
		return group
	}
	return slices.DeleteFunc(slices.Clone(group), func(l *progress.Lane) bool { return !l.More && !heard.Has(l.Lease.Lane) })
}

// past publishes a batch of rows that may pass the rows that stay. It also starts a probe if the pause of a topic is
// over.
func (w *worker) past(ctx context.Context, group []*progress.Lane) (moved int, err error) {
	p, err := w.search.pick(ctx, group, w.search.stay, topicsOf)
	if err != nil {
		return p.moved, err
	}
	for _, l := range group {
		l.More = true // the heads of the lanes were not fetched, so they are in question afterwards
		if p.beyond != nil {
			l.Full = p.beyond[l.Lease.Lane] // then a tenant may wait behind the rows that were picked, see fair
		}
		if len(w.search.stay.Topics) == 0 {
			l.Passed = l.Topics.To
		}
	}
	w.search.backlogged.Leads(p.rows, w.cfg.BatchSize)
	beyond, err := w.search.far(ctx, group, w.search.stay, topicsOf)
	w.search.join(beyond)
	if moved = p.moved + beyond.moved; err != nil {
		return moved, err
	}
	n, err := w.prober.probe(ctx, group)
	if moved += n; p.more {
		moved = max(moved, 1) // there is more to look at: no pause
	}
	w.more = w.more || moved > 0
	return moved, err
}
