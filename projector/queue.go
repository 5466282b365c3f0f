package projector

import (
	"context"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/projector/internal/leases"
	"github.com/oncebox/oncebox/projector/internal/measure"
	"github.com/oncebox/oncebox/projector/internal/progress"
	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// queue holds the rows of one key that are sent together, or one row without a key. The rows are held ones, except in
// a probe.
type queue struct {
	lane *progress.Lane
	key  string
	rows []*outboxdb.Row
	from int // the index of its first row among all rows of the publication
}

// queues reads the held rows of a key, and writes down what became of them. Each write
// compares the operators' counter of the lane, because an operator may replay or discard the same rows at the same
// time.
type queues struct {
	db        lanedb.Lanes
	owned     *leases.Owned
	settle    *settler
	rules     *progress.Rules
	telemetry *measure.Instruments
}

// headOnly is the bound in bytes for a queue of which only the head is wanted. The head comes whatever its size, and
// no other row fits.
const headOnly = 1

// settleQueues writes down what became of the queues. The error is that of the database or of the broker. After an
// error of the database, the rows that the broker has confirmed in the remaining queues are owed: they are settled
// before the next fetch, or they would be sent twice.
//
// Trouble with the broker is returned as an error, although the rows need nothing more: the loop pauses after an error,
// and without a pause a broker that is away would be called again and again.
func (h *queues) settleQueues(ctx context.Context, queues []*queue, errs map[int]error) (moved int, err error) {
	var trouble error
	for i, q := range queues {
		n, err := h.settleQueue(ctx, q, errs)
		moved += n
		if err != nil {
			// settleQueue owes the rows of its own queue if they were confirmed.
			for _, q := range queues[i+1:] {
				h.settle.owe(q.lane, q.key, q.sent(errs))
			}
			return moved, err
		}
		for i := range q.rows {
			if e := errs[q.from+i]; e != nil && schedule.Classify(e) == schedule.ClassBroker {
				trouble = e
			}
		}
	}
	return moved, trouble
}

// queueOf returns the rows to send for a row that is due: the row, and the rows behind it in its key that go the same
// way. It returns nil if the row is not the head of its key, or may not be sent. bytes is the bound of
// [lanedb.Held.Queue].
func (h *queues) queueOf(ctx context.Context, l *progress.Lane, head *outboxdb.Row, bytes int64) (*queue, error) {
	if head.Key == "" {
		return &queue{lane: l, rows: []*outboxdb.Row{head}}, nil
	}
	if !h.isTurn(l, head) {
		return nil, nil
	}
	rows, err := h.db.Held.Queue(ctx, l.Lease.Lane, head.Key, bytes)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 || rows[0].Sequence != head.Sequence {
		return nil, nil
	}
	q := &queue{lane: l, key: head.Key}
	for i := range rows {
		r := &rows[i]
		// A row for another topic or routing key would not keep its order, and a row may have to wait, be expired, or
		// be no valid event. It becomes due as the head.
		if i > 0 && (r.Waits || r.Expired || r.Refusal() != "" || r.Topic != head.Topic || r.RoutingKey != head.RoutingKey) {
			break
		}
		q.rows = append(q.rows, r)
	}
	return q, nil
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
func (h *queues) settleQueue(ctx context.Context, q *queue, errs map[int]error) (moved int, err error) {
	l := q.lane
	sent := q.sent(errs)
	// Confirmed rows first: if the write of the refusal below fails, nothing is sent twice.
	if len(sent) > 0 {
		if err := h.settle.settleHeld(ctx, l, q.key, sent); err != nil {
			return 0, h.settle.forget(ctx, l, err)
		}
		moved += len(sent)
	}
	if len(sent) == len(q.rows) {
		return moved, nil
	}
	head, reason := q.rows[len(sent)], errs[q.from+len(sent)]
	if schedule.Classify(reason) != schedule.ClassMessage {
		h.telemetry.Unconfirmed(ctx, len(q.rows)-len(sent))
		return moved, nil
	}
	h.telemetry.Refused(head)
	// The confirmed rows before this one have left, so it is the head of its key.
	wait, dead := h.rules.Refusal(head, reason)
	if dead {
		n, err := h.settle.giveUp(ctx, map[int16]*progress.Lane{l.Lease.Lane: l}, []*outboxdb.Row{head}, reason.Error(), h.rules.BlocksDead)
		return moved + n, err
	}
	o := lanedb.Outcome{
		Seq: head.Sequence, Verdict: lanedb.Refused, Wait: wait, Error: reason.Error(), Cause: head.Fingerprint(reason.Error()),
	}
	if err := h.db.Held.RetryHeld(ctx, l.Lease, l.Blocks.Change(), o); err != nil {
		return moved, h.settle.forget(ctx, l, err)
	}
	h.settle.report(ctx, head, o)
	return moved + 1, nil
}

// expire makes dead letters of the due rows that have expired, all at once, and returns the other due rows. There may
// be thousands of expired rows in front of rows that are still wanted, and one write for each of them would take too
// long. A row that is no valid event has a reason of its own, so it is written down by itself.
func (h *queues) expire(ctx context.Context, lanes map[int16]*progress.Lane, due []lanedb.DueRow) (alive []lanedb.DueRow, moved int, err error) {
	var expired []*outboxdb.Row
	for i := range due {
		r := &due[i].Row
		l := lanes[r.Lane]
		switch {
		case !r.Expired && r.Refusal() == "":
			alive = append(alive, due[i])
		case !h.isTurn(l, r):
		case r.Refusal() != "":
			n, err := h.settle.giveUp(ctx, lanes, []*outboxdb.Row{r}, r.Refusal(), h.rules.BlocksDead)
			if moved += n; err != nil {
				return nil, moved, err
			}
		default:
			expired = append(expired, r)
		}
	}
	n, err := h.settle.giveUp(ctx, lanes, expired, progress.ErrExpired.Error(), h.rules.BlocksExpired)
	return alive, moved + n, err
}

// isTurn reports whether the block of its key allows a due row to be sent: there is a block, and it is not that of a
// dead letter. If not, the blocks that the worker remembers, or the row, are wrong, and the next pass, which comes at
// once, reads the blocks again.
func (h *queues) isTurn(l *progress.Lane, r *outboxdb.Row) bool {
	if r.Key == "" || l.Blocks.MaySend(r.Key) {
		return true
	}
	if l.Blocks.Doubt() {
		h.owned.Nudge()
	}
	return false
}
