package projector

import (
	"context"
	"math"
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// heldRows sends rows that were refused before, and rows that wait behind them.
type heldRows struct {
	db      lanedb.Lanes
	owned   *owned
	stay    *searcher
	publish *publisher
	settle  *settler
	queues  *queues
	isolate *isolator
	limit   limit
	bytes   int64 // Config.BatchBytes
	due     *dueTime
}

// held sends held rows whose time has come, and the rows that wait behind them.
//
// Only the head of a key has a time; the rows behind it wait at infinity. A head that is due is sent together with as
// many followers as fit, so a long queue does not need a look for each row. Rows that were in flight when a former
// owner died are sent apart, after all others.
func (h *heldRows) held(ctx context.Context, lanes []*lane) (moved int, err error) {
	ctx, cancel := h.limit.begun(ctx)
	defer cancel()
	byLane := map[int16]*lane{}
	for _, l := range lanes {
		byLane[l.lease.Lane] = l
	}
	due, seen, err := h.lookDue(ctx, lanes)
	if err != nil {
		return 0, err
	}
	if due, moved, err = h.queues.expire(ctx, byLane, due); err != nil {
		return moved, err
	}
	var queues []*queue
	var send []*outboxdb.Row
	var alone []*outboxdb.Row
	most, bytes := h.bytes, int64(0)
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
		q, err := h.queues.queueOf(ctx, l, &due[i].Row, left)
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
		n, err := h.queues.settleQueues(ctx, queues, h.publish.publish(ctx, byLane, send))
		if moved += n; err != nil {
			return moved, err
		}
	}
	n, err := h.isolate.isolateHeld(ctx, byLane, alone)
	if moved += n; seen == seenPart {
		moved = max(moved, 1) // rows that may be sent can be behind those that stay: no pause
	}
	return moved, err
}

// untilDue returns the time for which the worker need not look for held rows. It asks the database only if the answer
// is not known.
func (h *heldRows) untilDue(ctx context.Context) (time.Duration, error) {
	const never = time.Duration(math.MaxInt64)
	if !h.due.known && !h.due.last.IsZero() { // else the lanes were not ready for a look
		ctx, cancel := h.limit.bounded(ctx)
		defer cancel()
		// The last look came after the question before. What is due since that question and was left alone costs one look more.
		next, err := h.db.Held.NextDue(ctx, h.owned.numbers(), h.due.asked)
		if err != nil {
			return 0, err
		}
		h.due.known, h.due.next, h.due.asked = true, time.Time{}, next.Asked
		if next.Some {
			h.due.next = time.Now().Add(max(next.In, 0) + time.Millisecond)
		}
	}
	if h.due.next.IsZero() {
		return never, nil
	}
	return max(time.Until(h.due.next), 0), nil
}

// lookDue returns held rows that may be tried now. While topics or tenants are left alone, it reads each row that
// stays only once, however long it stays.
func (h *heldRows) lookDue(ctx context.Context, lanes []*lane) ([]lanedb.DueRow, dueSeen, error) {
	stay := h.stay.staying()
	if len(stay.Topics)+len(stay.Tenants) == 0 {
		due, all, err := h.db.Held.Due(ctx, numbersOf(lanes), h.bytes)
		if all {
			return due, seenAll, err
		}
		return due, seenMost, err
	}
	after := make([]lanedb.DueInfo, len(lanes))
	byLane := map[int16]*lane{}
	for i, l := range lanes {
		after[i] = l.held.to
		after[i].Lane = l.lease.Lane
		byLane[l.lease.Lane] = l
	}
	infos, err := h.db.Held.ScanDue(ctx, after)
	if err != nil {
		return nil, seenMost, err
	}
	ids, looked := chooseDue(infos, stay, lanedb.MaxDue, func(n int16) *heldSkip { return &byLane[n].held })
	seen := seenMost
	for _, a := range after {
		if looked[a.Lane] == lanedb.ScanWindow && byLane[a.Lane].held.to.RowID != a.RowID {
			seen = seenPart
		}
	}
	if len(ids) == 0 {
		return nil, seen, nil
	}
	due, err := h.db.Held.FetchDueRows(ctx, ids, h.bytes)
	return due, seen, err
}

func numbersOf(lanes []*lane) []int16 {
	out := make([]int16, len(lanes))
	for i, l := range lanes {
		out[i] = l.lease.Lane
	}
	return out
}

// mostReleased is the largest number of keys that one pass releases. An operator may discard the dead letters of many
// more keys at once.
const mostReleased = 500

// release handles keys that are stalled: they are blocked, but none of their rows is due or ever will be, because an
// operator discarded the head. It makes the next row of each key due, or lifts the block if there is no row. Until
// then, new events of such a key become held rows, so the order is kept.
func (h *heldRows) release(ctx context.Context, group []*lane) (moved int, err error) {
	lanes := map[int16]*lane{}
	var ids []outboxdb.RowID
	var keys []lanedb.LaneKey
	for _, l := range group {
		if l.loaded < 0 || len(l.stalled) == 0 || len(keys) == mostReleased {
			continue
		}
		n := min(len(l.stalled), mostReleased-len(keys))
		for _, key := range l.stalled[:n] {
			keys = append(keys, lanedb.LaneKey{Lane: l.lease.Lane, Key: key})
		}
		l.stalled = l.stalled[n:]
		lanes[l.lease.Lane] = l
		ids = append(ids, outboxdb.RowID{Lane: l.lease.Lane})
	}
	if len(keys) == 0 {
		return 0, nil
	}
	ctx, cancel := h.limit.begun(ctx)
	defer cancel()
	*h.due = dueTime{}
	leases := loadedLeasesOf(lanes, ids)
	lifted, held, err := h.db.Held.ReleaseKeys(ctx, leases, keys)
	if err = h.settle.forgetUnless(ctx, lanes, leases, held, err); err != nil {
		return 0, err
	}
	for _, k := range lifted {
		delete(lanes[k.Lane].blocks, k.Key)
	}
	return len(keys), nil
}
