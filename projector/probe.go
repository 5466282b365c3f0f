package projector

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/projector/internal/leases"
	"github.com/oncebox/oncebox/projector/internal/progress"
	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// probe is one row of a topic in trouble, the oldest, which is sent by itself to find out whether the topic works
// again. The publication may take up to Config.PublishTimeout, so it runs beside the worker, which goes on with rows
// of other topics. When the publication has ended, the worker writes down what became of the row, see probed. Until
// then all workers leave the topic alone, and all rows of the row's key wait.
type probe struct {
	topic string
	queue *queue // of one row
	fresh bool   // the row is in the log; false: it is a held one
	began time.Time
	done  chan struct{} // closed when the publication has ended; errs and failed may be read then

	generation int // the generation of the mark when the row was read, as in unsettled

	errs   map[int]error
	failed error // the publisher panicked
}

// prober finds out whether topics in trouble work again. It sends one row of them at a time: a batch to a topic that
// hangs would keep the worker for the whole of Config.PublishTimeout, and rows of other topics with it.
//
// A probe takes several passes. In the first one, probe finds a row and hands it over. The publication then runs beside
// the passes, which leave the topic and the row's key alone. The first pass after its end records the result, see
// probed, before anything else: the row is still in its lane, and a fetch would find it once more. Until that is done,
// the worker does not give the lane back.
type prober struct {
	db      lanedb.Lanes
	server  *server
	owned   *leases.Owned
	topics  *schedule.Topics
	pass    *searcher
	fetch   *fetcher
	publish *publisher
	settle  *settler
	queues  *queues
	isolate *isolator
	rules   *progress.Rules
	limit   limit
	log     *slog.Logger

	trial *probe // the probe that is on its way; nil: there is none
}

// probe starts a probe of a topic whose pause is over, if this worker knows a row of it. It returns how many rows it
// moved on the way to that row.
//
// A worker has one probe at a time, and a topic has one probe at a time: schedule.Topics.Probe gives the right to a
// single worker.
func (pr *prober) probe(ctx context.Context, group []*progress.Lane) (moved int, err error) {
	if pr.trial != nil {
		return 0, nil
	}
	for _, topic := range pr.topics.Ripe() {
		if !slices.ContainsFunc(group, func(l *progress.Lane) bool { return l.Knows(topic) }) || !pr.topics.Probe(topic) {
			continue
		}
		// From here on the topic is this worker's to probe. Each way out of this function gives it back, or leaves that
		// to probed.
		p := &probe{topic: topic, done: make(chan struct{}), generation: pr.server.generation}
		moved, err = pr.oldest(ctx, group, p)
		switch {
		case err != nil || p.queue == nil && moved == 0:
			pr.topics.Probed(topic, schedule.NothingKnown)
		case p.queue == nil: // rows were moved out of the way, and the row behind them may be tried at once
			pr.topics.Probed(topic, schedule.RowRefused)
		default:
			pr.trial = p
			go pr.try(context.WithoutCancel(ctx), p) // it ends by PublishTimeout, and awaitProbe waits for it
		}
		return moved, err
	}
	return 0, nil
}

// try publishes the row of a probe. It runs in a goroutine of its own. It wakes the worker at the end, whatever
// happens, also after a panic.
func (pr *prober) try(ctx context.Context, p *probe) {
	defer pr.owned.Nudge()
	defer close(p.done) // before the nudge, or the worker could look too early and rest again
	p.began = time.Now()
	p.failed = guard(ctx, func(ctx context.Context) error {
		p.errs = pr.publish.handOver(ctx, p.queue.rows)
		return nil
	})
}

// probes reports whether a row of the lane is on its way as a probe.
func (pr *prober) probes(l *progress.Lane) bool { return pr.trial != nil && pr.trial.queue.lane == l }

// oldest finds the row for a probe: a held row that is due, or else the fresh row with the lowest number in these
// lanes. If the row that a search has seen is not there any more, that search begins again.
func (pr *prober) oldest(ctx context.Context, group []*progress.Lane, p *probe) (moved int, err error) {
	ctx, cancel := pr.limit.begun(ctx)
	defer cancel()
	var of *progress.Lane
	// Held rows first: they are older than the rows of their keys in the log, which have to wait behind them.
	for _, l := range group {
		if id, ok := l.Held.First[p.topic]; ok {
			if p.queue, moved, err = pr.oldestHeld(ctx, l, id); p.queue == nil {
				l.Held = schedule.HeldSearch{}
			}
			return moved, err
		}
		first, ok := l.Topics.First[p.topic]
		if ok && (of == nil || first < of.Topics.First[p.topic]) {
			of = l
		}
	}
	p.fresh = true
	if p.queue, moved, err = pr.oldestFresh(ctx, of, p.topic); p.queue == nil && moved == 0 {
		of.Topics = of.Topics.Anew()
	}
	return moved, err
}

// oldestHeld returns a held row as a queue, or nil if it cannot be sent now: it has expired, it is not the head of
// its key, or it was in flight when a former owner died and is sent apart instead.
func (pr *prober) oldestHeld(ctx context.Context, l *progress.Lane, id outboxdb.RowID) (q *queue, moved int, err error) {
	due, err := pr.db.Held.FetchDueRows(ctx, []outboxdb.RowID{id}, headOnly)
	if err != nil || len(due) == 0 {
		return nil, 0, err
	}
	lanes := map[int16]*progress.Lane{id.Lane: l}
	if due, moved, err = pr.queues.expire(ctx, lanes, due); err != nil || len(due) == 0 {
		return nil, moved, err
	}
	if l.InFlight.HasHeld(&due[0]) {
		n, err := pr.isolateProbe(due[0].Topic, func() (int, error) {
			return pr.isolate.isolateHeld(ctx, lanes, []*outboxdb.Row{&due[0].Row})
		})
		return nil, n, err
	}
	if q, err = pr.queues.queueOf(ctx, l, &due[0].Row, headOnly); err != nil || q == nil {
		return nil, 0, err
	}
	q.rows = q.rows[:1]
	// As in publish: the database may have taken long to give the row.
	if !pr.owned.MayPublish(lanes, q.rows) {
		return nil, 0, nil
	}
	return q, 0, nil
}

// oldestFresh takes the first row of a topic that is the first unsent row of its key. Rows in front of it that cannot
// be sent either, because they have expired or must wait, are moved to where they belong.
func (pr *prober) oldestFresh(ctx context.Context, l *progress.Lane, topic string) (*queue, int, error) {
	// Up to the position of the search there are only rows that are paused, and rows that wait behind these. Beyond
	// it, there may be rows of the same key that are still to be sent.
	_, short := pr.server.mark.now()
	from := short.Cursor(l, &l.Topics)
	from.After = min(from.After, l.Topics.First[topic]-1)
	infos, err := pr.db.Log.Scan(ctx, []lanedb.Cursor{from}, pr.pass.stay)
	if err != nil {
		return nil, 0, err
	}
	ids := l.Topics.HeadsOf(infos, topic, pr.pass.seed)
	if len(ids) == 0 {
		return nil, 0, nil
	}
	lanes := map[int16]*progress.Lane{l.Lease.Lane: l}
	rows, err := pr.fetch.fetchPicked(ctx, lanes, ids)
	if err != nil {
		return nil, 0, err
	}
	// One row at a time, until one of them is to be sent. A whole batch would sort further rows to be sent as well, and
	// these would have to be put back.
	b := progress.NewBatch(lanes, pr.rules)
	for i := 0; i < len(rows) && len(b.Send)+len(b.Apart) == 0; i++ {
		b.Sort(rows[i : i+1])
	}
	one := b.Send
	b.Send = nil
	if err := pr.settle.settle(ctx, b); err != nil {
		return nil, b.Moved, err
	}
	if len(b.Apart) > 0 {
		n, err := pr.isolateProbe(topic, func() (int, error) { return pr.isolate.isolate(ctx, lanes, b.Apart) })
		return nil, b.Moved + n, err
	}
	if len(one) == 0 || !pr.owned.MayPublish(lanes, one) {
		return nil, b.Moved, nil
	}
	return &queue{lane: l, rows: one}, b.Moved, nil
}

// isolateProbe sends a row that was in flight when a former owner died. It is sent by isolate, not beside the worker,
// and its publication reports about the topic as every other one does. So the probe itself ends here.
func (pr *prober) isolateProbe(topic string, isolate func() (int, error)) (int, error) {
	pr.topics.Probed(topic, schedule.RowRefused)
	return isolate()
}

// awaitProbe waits for the probe of a worker that has stopped, and writes down what became of its row. Otherwise the
// next owner would send it again.
func (pr *prober) awaitProbe(ctx context.Context) {
	if pr.trial == nil {
		return
	}
	<-pr.trial.done // at the latest a moment after Config.PublishTimeout
	if _, err := pr.probed(ctx, pr.trial); err != nil {
		pr.log.WarnContext(ctx, "oncebox: the result of a probe could not be recorded, its event is sent again", "error", err)
	}
}

// ended returns the probe if its publication has ended, or nil.
func (pr *prober) ended() *probe {
	if pr.trial == nil {
		return nil
	}
	select {
	case <-pr.trial.done:
		return pr.trial
	default:
		return nil
	}
}

// probed writes down what became of the row of a probe that has ended, and what that says about its topic.
//
// It looks at the sequence first. If the server has crashed since the row was read, or another one has taken over,
// the row's number may belong to another row now. Then nothing is written, and the row is sent again if it is still
// there.
func (pr *prober) probed(ctx context.Context, p *probe) (moved int, err error) {
	ctx, cancel := pr.limit.begun(ctx)
	defer cancel()
	now, _, err := pr.server.mark.observe(ctx)
	if err != nil {
		return 0, err // the next pass asks again
	}
	pr.trial = nil
	defer func() { // after the settle: the topic must not come back while its first row is still in the lane
		if pause := pr.topics.Probed(p.topic, pr.conclude(p)); pause > 0 {
			pr.publish.reportPause(ctx, p.topic, pause, p.errs[0])
		}
	}()
	if p.failed != nil {
		return 0, p.failed
	}
	if now != p.generation {
		return 0, nil
	}
	if !p.fresh {
		return pr.queues.settleQueue(ctx, p.queue, p.errs)
	}
	b := progress.NewBatch(map[int16]*progress.Lane{p.queue.lane.Lease.Lane: p.queue.lane}, pr.rules)
	b.Send = p.queue.rows
	b.Judge(p.errs)
	err = pr.settle.settle(ctx, b)
	return b.Moved, err
}

// conclude returns what the end of a probe says about its topic. If no answer came, and no other call has had an
// answer meanwhile, the broker is in trouble, and nothing is known about the topic.
func (pr *prober) conclude(p *probe) schedule.Finding {
	switch class := schedule.Classify(p.errs[0]); {
	case p.failed != nil:
		return schedule.TopicInTrouble
	case p.errs[0] == nil:
		pr.topics.Answered(p.began)
		return schedule.TopicSound
	case class == schedule.ClassMessage:
		return schedule.RowRefused
	case class != schedule.ClassTopic && !pr.topics.Answers(p.began):
		return schedule.NothingKnown
	default:
		return schedule.TopicInTrouble
	}
}
