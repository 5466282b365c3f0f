package projector

import (
	"context"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// queue holds the rows of one key that are sent together, or one row without a key. The rows are held ones, except in
// a probe.
type queue struct {
	lane *lane
	key  string
	rows []*outboxdb.Row
	from int // the index of its first row among all rows of the publication
}

// headOnly is the bound in bytes for a queue of which only the head is wanted. The head comes whatever its size, and
// no other row fits.
const headOnly = 1

// held sends held rows whose time has come, and the rows that wait behind them.
//
// Only the head of a key has a time; the rows behind it wait at infinity. A head that is due is sent together with as
// many followers as fit, so a long queue does not need a look for each row. Rows that were in flight when a former
// owner died are sent apart, after all others.
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
			left = max(left, 1) // 0 would mean no bound
		}
		if most > 0 && bytes > 0 && int64(len(due[i].Payload)) > left {
			seen = max(seen, seenMost)
			break // the bytes are used up; the other rows stay due, and the next look finds them
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
		moved = max(moved, 1) // rows that may be sent can be behind those that stay: no pause
	}
	return moved, err
}

// settleQueues writes down what became of the queues. The error is that of the database or of the broker. After an
// error of the database, the rows that the broker has confirmed in the remaining queues are owed: they are settled
// before the next fetch, or they would be sent twice.
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

// queueOf returns the rows to send for a row that is due: the row, and the rows behind it in its key that go the same
// way. It returns nil if the row is not the head of its key, or may not be sent. bytes is the bound of
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
		// A row for another topic or routing key would not keep its order, and a row may have to wait or be
		// expired. It becomes due as the head.
		if i > 0 && (r.Waits || r.Expired || r.Topic != head.Topic || r.RoutingKey != head.RoutingKey) {
			break
		}
		q.rows = append(q.rows, r)
	}
	return q, nil
}

// doubt makes the worker read the blocks of a lane again at once, because a due row does not fit them: an operator
// has probably changed the lane since they were read. If the operators' counter turns out to be unchanged, no
// operator acted: somebody changed the row by hand, under a block that holds it. The row then stays until an operator
// acts. The field doubted keeps the worker from reading the same blocks again and again.
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

// settleQueue writes down what became of a queue. The confirmed rows at its front leave. The first row that was not
// confirmed is the head now: if it was refused, it waits for its next try or dies. If the topic or the broker is the
// reason, it stays as it is and is due at once.
//
// A row behind a refused one is not settled even if the broker has confirmed it, because it is not at the front. It
// is sent again.
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
