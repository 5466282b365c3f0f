package projector

import (
	"context"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// queue is the held rows of one key that are sent together, or one unordered row.
type queue struct {
	lane *lane
	key  string
	rows []*outboxdb.Row
	from int // index of the first of them in what is published
}

// headOnly bounds the bytes of a queue where only the head is wanted: the head comes whatever its size.
const headOnly = 1

// held sends held rows whose time has come. A head that the broker takes pulls what waits behind it along.
func (w *worker) held(ctx context.Context, lanes []*lane) (moved int, err error) {
	ctx, cancel := w.r.begun(ctx)
	defer cancel()
	byLane := map[int16]*lane{}
	for _, l := range lanes {
		byLane[l.lease.Lane] = l
	}
	due, seen, err := w.lookDue(ctx, lanes)
	if err != nil {
		return 0, err
	}
	if due, moved, err = w.expire(ctx, byLane, due); err != nil {
		return moved, err
	}
	var queues []*queue
	var send []*outboxdb.Row
	var alone []*outboxdb.Row
	most, bytes := w.r.p.cfg.batchBytes(), int64(0)
	for i := range due {
		l := byLane[due[i].Lane]
		if l.inFlight.hasHeld(&due[i]) {
			alone = append(alone, &due[i].Row)
			continue
		}
		left := most - bytes
		if most > 0 {
			left = max(left, 1) // 0 is no bound
		}
		if most > 0 && bytes > 0 && int64(len(due[i].Payload)) > left {
			seen = max(seen, seenMost)
			break // the rest is still due
		}
		q, err := w.queueOf(ctx, l, &due[i].Row, left)
		if err != nil {
			return moved, err
		}
		if q == nil {
			continue
		}
		q.from = len(send)
		send = append(send, q.rows...)
		queues = append(queues, q)
		for _, r := range q.rows {
			bytes += int64(len(r.Payload))
		}
	}
	if len(alone) == 0 && seen == seenAll {
		for _, l := range lanes {
			l.inFlight.forgetHeld()
		}
	}
	if len(send) > 0 {
		n, err := w.settleQueues(ctx, queues, w.publish(ctx, byLane, send))
		if moved += n; err != nil {
			return moved, err
		}
	}
	n, err := w.isolateHeld(ctx, byLane, alone)
	if moved += n; seen == seenPart {
		moved = max(moved, 1) // no reason to pause
	}
	return moved, err
}

// settleQueues writes down what became of the queues. The error is the database's or the broker's.
func (w *worker) settleQueues(ctx context.Context, queues []*queue, errs map[int]error) (moved int, err error) {
	var trouble error
	for i, q := range queues {
		n, err := w.settleQueue(ctx, q, errs)
		moved += n
		if err != nil {
			for _, q := range queues[i+1:] {
				w.owe(q.lane, q.key, q.sent(errs))
			}
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

// queueOf returns what is to be sent for a row that is due, nil if it is not this worker's turn. bytes is that of
// [lanedb.Held.Queue].
func (w *worker) queueOf(ctx context.Context, l *lane, head *outboxdb.Row, bytes int64) (*queue, error) {
	if head.Key == "" {
		return &queue{lane: l, rows: []*outboxdb.Row{head}}, nil
	}
	if !w.isTurn(l, head) {
		return nil, nil
	}
	rows, err := w.r.lanes.Held.Queue(ctx, l.lease.Lane, head.Key, bytes)
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

// doubt has the blocks of a lane read again at once, because what is due does not fit them: an operator was here since they
// were read. If the operators' counter has not moved by then, nobody was, and a row was made due by hand under a block that
// holds it. It stays until somebody is.
func (w *worker) doubt(l *lane) {
	if l.loaded >= 0 && l.loaded != l.doubted {
		l.doubted, l.loaded = l.loaded, -1
		w.nudge()
	}
}

// sent returns the rows at the front of the queue that the broker confirmed.
func (q *queue) sent(errs map[int]error) (sent []int64) {
	for i, r := range q.rows {
		if errs[q.from+i] != nil {
			break
		}
		sent = append(sent, r.Sequence)
	}
	return sent
}

// settleQueue writes down what became of a queue: the confirmed rows at its front leave, and the first that was refused
// is the head now.
func (w *worker) settleQueue(ctx context.Context, q *queue, errs map[int]error) (moved int, err error) {
	l, p := q.lane, w.r.p
	sent := q.sent(errs)
	if len(sent) > 0 {
		if err := w.settleHeld(ctx, l, q.key, sent); err != nil {
			return 0, w.forget(ctx, l, err)
		}
		moved += len(sent)
	}
	if len(sent) == len(q.rows) {
		return moved, nil
	}
	head, reason := q.rows[len(sent)], errs[q.from+len(sent)]
	if classify(reason) != classMessage {
		p.telemetry.unconfirmed.Add(ctx, int64(len(q.rows)-len(sent)))
		return moved, nil
	}
	wait, dead := w.refused(head, reason)
	if dead {
		n, err := w.giveUp(ctx, map[int16]*lane{l.lease.Lane: l}, []*outboxdb.Row{head}, reason.Error(), p.cfg.blocksDead)
		return moved + n, err
	}
	if err := w.r.lanes.Held.RetryHeld(ctx, l.lease, l.loaded, head.Sequence, wait, reason.Error()); err != nil {
		return moved, w.forget(ctx, l, err)
	}
	w.report(ctx, head, lanedb.Outcome{Seq: head.Sequence, Verdict: lanedb.Refused, Wait: wait, Error: reason.Error()})
	return moved + 1, nil
}
