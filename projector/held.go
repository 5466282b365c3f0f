package projector

import (
	"context"
	"errors"

	"github.com/oncebox/oncebox/outbox"
)

// queue is the held rows of one key that are sent together, or one unordered row.
type queue struct {
	lane *lane
	key  string
	rows []*outbox.Row
	from int // index of the first of them in what is published
}

// held sends held rows whose time has come. A head that the broker takes pulls what waits behind it along.
func (w *worker) held(ctx context.Context, lanes []*lane) (moved int, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.r.p.cfg.Lease)
	defer cancel()
	byLane := map[int16]*lane{}
	var numbers []int16
	for _, l := range lanes {
		byLane[l.lease.Lane] = l
		numbers = append(numbers, l.lease.Lane)
	}
	due, err := w.r.store.Due(ctx, numbers, w.leftAlone())
	if err != nil {
		return 0, err
	}
	var queues []*queue
	var send []*outbox.Row
	var alone []*outbox.Held
	for i := range due {
		l := byLane[due[i].Lane]
		if l.suspects.hasHeld(&due[i]) {
			alone = append(alone, &due[i])
			continue
		}
		q, err := w.queueOf(ctx, l, &due[i].Row)
		if err != nil {
			return 0, err
		}
		if q == nil {
			continue
		}
		q.from = len(send)
		send = append(send, q.rows...)
		queues = append(queues, q)
	}
	if len(alone) == 0 && len(due) < outbox.MaxDue {
		for _, l := range lanes {
			l.suspects.forgetHeld()
		}
	}
	if moved, err = w.sendQueues(ctx, queues, send); err != nil {
		return moved, err
	}
	n, err := w.isolateHeld(ctx, byLane, alone)
	return moved + n, err
}

// sendQueues publishes what is in the queues.
func (w *worker) sendQueues(ctx context.Context, queues []*queue, send []*outbox.Row) (moved int, err error) {
	if len(send) == 0 {
		return 0, nil
	}
	errs := w.publish(ctx, send)
	var trouble error
	for _, q := range queues {
		n, err := w.settleQueue(ctx, q, errs)
		moved += n
		if err != nil {
			return moved, err
		}
		for i := range q.rows {
			if e := errs[q.from+i]; e != nil && classify(e) == classBroker {
				trouble = e
			}
		}
	}
	return moved, trouble
}

// queueOf returns what is to be sent for a row that is due, nil if it is not this worker's turn.
func (w *worker) queueOf(ctx context.Context, l *lane, head *outbox.Row) (*queue, error) {
	if head.Expired && (head.Key == "" || l.blocks[head.Key] == stateFailed || l.blocks[head.Key] == stateDraining) {
		return nil, w.bury(ctx, l, head, errExpired.Error())
	}
	if head.Key == "" {
		return &queue{lane: l, rows: []*outbox.Row{head}}, nil
	}
	if state, blocked := l.blocks[head.Key]; !blocked || state == stateDead {
		// An operator was here since the blocks were loaded.
		l.loaded = -1
		w.nudge()
		return nil, nil
	}
	rows, err := w.r.store.Queue(ctx, l.lease.Lane, head.Key)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 || rows[0].Sequence != head.Sequence {
		return nil, nil
	}
	q := &queue{lane: l, key: head.Key}
	for i := range rows {
		r := &rows[i]
		// What goes elsewhere, or must wait still, goes later: it is due when it has become the head.
		if i > 0 && (r.Waits || r.Expired || r.Topic != head.Topic || r.RoutingKey != head.RoutingKey) {
			break
		}
		q.rows = append(q.rows, r)
	}
	return q, nil
}

// settleQueue writes down what became of a queue: the confirmed rows at its front leave, and the first that was refused
// is the head now.
func (w *worker) settleQueue(ctx context.Context, q *queue, errs map[int]error) (moved int, err error) {
	l, p := q.lane, w.r.p
	var sent []int64
	for i, r := range q.rows {
		if errs[q.from+i] != nil {
			break
		}
		sent = append(sent, r.Sequence)
	}
	if len(sent) > 0 {
		lifted, err := w.r.store.SettleHeld(ctx, l.lease, l.loaded, q.key, sent)
		if err != nil {
			return 0, w.forget(ctx, l, err)
		}
		if lifted {
			delete(l.blocks, q.key)
		}
		moved += len(sent)
		p.published.Add(ctx, int64(len(sent)))
	}
	if len(sent) == len(q.rows) {
		return moved, nil
	}
	head, reason := q.rows[len(sent)], errs[q.from+len(sent)]
	if classify(reason) != classMessage {
		p.unconfirmed.Add(ctx, int64(len(q.rows)-len(sent)))
		return moved, nil
	}
	wait, dead := w.verdict(head, reason)
	if dead {
		return moved + 1, w.bury(ctx, l, head, reason.Error())
	}
	if err := w.r.store.RetryHeld(ctx, l.lease, l.loaded, head.Sequence, wait, reason.Error()); err != nil {
		return moved, w.forget(ctx, l, err)
	}
	w.report(ctx, l.lease.Lane, []outbox.Outcome{{Seq: head.Sequence, Verdict: outbox.Refused, Wait: wait, Error: reason.Error()}})
	return moved + 1, nil
}

// errExpired is why a row is dead that nobody wants any more.
var errExpired = errors.New("expired before it was published")

// bury makes a held row a dead letter.
func (w *worker) bury(ctx context.Context, l *lane, r *outbox.Row, reason string) error {
	if w.r.p.cfg.goesOn(r.Topic) {
		lifted, err := w.r.store.AbandonHeld(ctx, l.lease, l.loaded, r.Sequence, reason)
		if err != nil {
			return w.forget(ctx, l, err)
		}
		if lifted {
			delete(l.blocks, r.Key)
		}
		w.report(ctx, l.lease.Lane, []outbox.Outcome{{Seq: r.Sequence, Verdict: outbox.Abandoned, Error: reason}})
		return nil
	}
	if err := w.r.store.KillHeld(ctx, l.lease, l.loaded, r.Sequence, reason); err != nil {
		return w.forget(ctx, l, err)
	}
	if r.Key != "" {
		l.blocks[r.Key] = stateDead
	}
	w.report(ctx, l.lease.Lane, []outbox.Outcome{{Seq: r.Sequence, Verdict: outbox.Dead, Error: reason}})
	return nil
}
