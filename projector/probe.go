package projector

import (
	"context"
	"hash/maphash"
	"slices"
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// probe is the oldest row of a topic in trouble, on its way alone. It may take as long as a publication may, so the worker
// goes on meanwhile with what is for other topics, and writes down what became of the row when that is known. Until then
// the topic, and all that waits behind the row under its key, is left alone by everybody.
type probe struct {
	topic string
	queue *queue // of one row
	fresh bool   // the row is not a held one
	began time.Time
	done  chan struct{}

	generation int // of the mark when the row was read, as in unsettled

	errs   map[int]error
	failed error // the publisher panicked
}

// probe tries a topic whose pause is over, if this worker has a row of it. It returns how many rows it moved on the way.
func (w *worker) probe(ctx context.Context, group []*lane) (moved int, err error) {
	if w.trial != nil {
		return 0, nil
	}
	for _, topic := range w.r.topics.ripe() {
		if !slices.ContainsFunc(group, func(l *lane) bool { return l.knows(topic) }) || !w.r.topics.probe(topic) {
			continue
		}
		p := &probe{topic: topic, done: make(chan struct{}), generation: w.generation}
		moved, err = w.oldest(ctx, group, p)
		switch {
		case err != nil || p.queue == nil && moved == 0:
			w.r.topics.probed(topic, verdictNone)
		case p.queue == nil:
			w.r.topics.probed(topic, verdictOfTheRow)
		default:
			w.trial = p
			go w.try(context.WithoutCancel(ctx), p)
		}
		return moved, err
	}
	return 0, nil
}

func (w *worker) try(ctx context.Context, p *probe) {
	defer w.nudge()
	defer close(p.done)
	p.began = time.Now()
	p.failed = guard(ctx, func(ctx context.Context) error {
		p.errs = w.handOver(ctx, p.queue.rows)
		return nil
	})
}

// knows tells whether a row of the topic was seen in the lane.
func (l *lane) knows(topic string) bool {
	_, fresh := l.topics.first[topic]
	_, held := l.held.first[topic]
	return fresh || held
}

// probes tells whether a row of the lane is on its way as a probe.
func (w *worker) probes(l *lane) bool { return w.trial != nil && w.trial.queue.lane == l }

// oldest finds the row to try a topic with: a held row that is due, else the first row of the lanes. Where what was seen has
// gone, the search begins anew.
func (w *worker) oldest(ctx context.Context, group []*lane, p *probe) (moved int, err error) {
	ctx, cancel := w.r.begun(ctx)
	defer cancel()
	var of *lane
	for _, l := range group {
		if id, ok := l.held.first[p.topic]; ok {
			if p.queue, moved, err = w.oldestHeld(ctx, l, id); p.queue == nil {
				l.held = heldSkip{}
			}
			return moved, err
		}
		first, ok := l.topics.first[p.topic]
		if ok && (of == nil || first < of.topics.first[p.topic]) {
			of = l
		}
	}
	p.fresh = true
	if p.queue, moved, err = w.oldestFresh(ctx, of, p.topic); p.queue == nil && moved == 0 {
		of.topics = skip{}
	}
	return moved, err
}

func (w *worker) oldestHeld(ctx context.Context, l *lane, id outboxdb.RowID) (q *queue, moved int, err error) {
	due, err := w.r.lanes.Held.FetchDueRows(ctx, []outboxdb.RowID{id}, headOnly)
	if err != nil || len(due) == 0 {
		return nil, 0, err
	}
	lanes := map[int16]*lane{id.Lane: l}
	if due, moved, err = w.expire(ctx, lanes, due); err != nil || len(due) == 0 {
		return nil, moved, err
	}
	if l.inFlight.hasHeld(&due[0]) {
		n, err := w.isolateProbe(due[0].Topic, func() (int, error) {
			return w.isolateHeld(ctx, lanes, []*outboxdb.Row{&due[0].Row})
		})
		return nil, n, err
	}
	if q, err = w.queueOf(ctx, l, &due[0].Row, headOnly); err != nil || q == nil {
		return nil, 0, err
	}
	q.rows = q.rows[:1]
	// As in publish: the database may have taken long to give the row.
	if !w.mayPublish(lanes, q.rows) {
		return nil, 0, nil
	}
	return q, 0, nil
}

// oldestFresh takes the first row of a topic that is not behind another one of its key. What is in front of it and is not
// to be sent either, because it has expired or must wait, is moved to where it belongs.
func (w *worker) oldestFresh(ctx context.Context, l *lane, topic string) (*queue, int, error) {
	// Up to the position of the search there is nothing but what is paused or waits behind it; beyond, rows may be in front
	// that will be sent.
	from := min(l.topics.to, l.topics.first[topic]-1)
	infos, err := w.r.lanes.Log.Scan(ctx, []lanedb.Cursor{{Lease: l.lease, Position: l.at, After: from}}, w.stay)
	if err != nil {
		return nil, 0, err
	}
	var ids []outboxdb.RowID
	seen := map[string]bool{}
	for _, g := range infos {
		head := g.Key == "" || !seen[g.Key] && !l.topics.keys.waits(maphash.String(w.r.seed, g.Key), g.Seq)
		if seen[g.Key] = true; head && g.Paused && g.Topic == topic {
			ids = append(ids, g.RowID)
		}
	}
	if len(ids) == 0 {
		return nil, 0, nil
	}
	lanes := map[int16]*lane{l.lease.Lane: l}
	rows, err := w.fetchPicked(ctx, lanes, ids)
	if err != nil {
		return nil, 0, err
	}
	b := newBatch(lanes)
	for i := 0; i < len(rows) && len(b.send)+len(b.apart) == 0; i++ {
		b.sort(w, rows[i:i+1])
	}
	one := b.send
	b.send = nil
	if err := w.settle(ctx, b); err != nil {
		return nil, b.moved, err
	}
	if len(b.apart) > 0 {
		n, err := w.isolateProbe(topic, func() (int, error) { return w.isolate(ctx, lanes, b.apart) })
		return nil, b.moved + n, err
	}
	if len(one) == 0 || !w.mayPublish(lanes, one) {
		return nil, b.moved, nil
	}
	return &queue{lane: l, rows: one}, b.moved, nil
}

// isolateProbe sends a row that was in flight. It is sent apart, and tells of the topic as every other publication does.
func (w *worker) isolateProbe(topic string, isolate func() (int, error)) (int, error) {
	w.r.topics.probed(topic, verdictOfTheRow)
	return isolate()
}

// awaitProbe ends the probe of a worker that has stopped.
func (w *worker) awaitProbe(ctx context.Context) {
	if w.trial == nil {
		return
	}
	<-w.trial.done // at the latest a moment after Config.PublishTimeout
	if _, err := w.probed(ctx); err != nil {
		w.r.p.log.WarnContext(ctx, "oncebox: what became of a row could not be written down, it is sent again", "error", err)
	}
}

// probed writes down what became of a probe that has ended, and what that says of its topic. It looks at the sequence first: a
// server that came after the row was read may have given its number to another one. Then nothing is written, and the row is
// sent again if it is still there.
func (w *worker) probed(ctx context.Context) (moved int, err error) {
	p := w.trial
	if p == nil {
		return 0, nil
	}
	select {
	case <-p.done:
	default:
		return 0, nil
	}
	ctx, cancel := w.r.begun(ctx)
	defer cancel()
	now, _, err := w.r.mark.latest(ctx, w.r.lanes.Log)
	if err != nil {
		return 0, err // the next pass asks again
	}
	w.trial = nil
	defer func() { // the topic comes back when the row has gone
		if pause := w.r.topics.probed(p.topic, w.conclude(p)); pause > 0 {
			w.reportPause(ctx, p.topic, pause, p.errs[0])
		}
	}()
	if p.failed != nil {
		return 0, p.failed
	}
	if now != p.generation {
		return 0, nil
	}
	if !p.fresh {
		return w.settleQueue(ctx, p.queue, p.errs)
	}
	b := newBatch(map[int16]*lane{p.queue.lane.lease.Lane: p.queue.lane})
	b.send, b.errs = p.queue.rows, p.errs
	b.judge(w)
	err = w.settle(ctx, b)
	return b.moved, err
}

// conclude says what the end of a probe means. No answer, while nothing else has one either, is the broker's trouble.
func (w *worker) conclude(p *probe) verdict {
	switch class := classify(p.errs[0]); {
	case p.failed != nil:
		return verdictTrouble
	case p.errs[0] == nil:
		w.r.topics.answered(p.began)
		return verdictSound
	case class == classMessage:
		return verdictOfTheRow
	case class != classTopic && !w.r.topics.answers(p.began):
		return verdictNone
	default:
		return verdictTrouble
	}
}
