package projector

import (
	"context"
	"math"
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/projector/internal/leases"
	"github.com/oncebox/oncebox/projector/internal/progress"
	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// heldRows sends rows that were refused before, and rows that wait behind them. They have left the log: a row that
// waits for an hour would hold up the position of its lane for an hour, and each fetch would have to step over it.
//
// The worker looks for them when one is due, and while it is busy once per Config.SleepBusy. It knows the time of the next
// one, see schedule.DueTime. Whatever may change that time makes it unknown, and the next idle turn asks the database.
type heldRows struct {
	db      lanedb.Lanes
	owned   *leases.Owned
	stay    *searcher
	publish *publisher
	settle  *settler
	queues  *queues
	isolate *isolator
	limit   limit
	bytes   int64 // Config.BatchBytes
	due     *schedule.DueTime
}

// held sends held rows whose time has come, and the rows that wait behind them.
//
// Only the head of a key has a time; the rows behind it wait at infinity. A head that is due is sent together with as
// many followers as fit, so a long queue does not need a look for each row. Rows that were in flight when a former
// owner died are sent apart, after all others.
func (h *heldRows) held(ctx context.Context, lanes []*progress.Lane) (moved int, err error) {
	ctx, cancel := h.limit.begun(ctx)
	defer cancel()
	byLane := map[int16]*progress.Lane{}
	for _, l := range lanes {
		byLane[l.Lease.Lane] = l
	}
	due, seen, err := h.lookDue(ctx, lanes)
	if err != nil {
		return 0, err
	}
	var now chosen
	if len(due) > 0 {
		if now, moved, err = h.choose(ctx, byLane, due); err != nil {
			return moved, err
		}
	}
	if len(now.apart) == 0 && !now.cut && seen == schedule.SeenAll {
		// No row that was due at the takeover is left, except rows that this process has survived already.
		for _, l := range lanes {
			l.InFlight.ForgetHeld()
		}
	}
	if len(now.send) > 0 {
		n, err := h.queues.settleQueues(ctx, now.queues, h.publish.publish(ctx, byLane, now.send))
		if moved += n; err != nil {
			return moved, err
		}
	}
	if len(now.apart) > 0 {
		n, err := h.isolate.isolateHeld(ctx, byLane, now.apart)
		if moved += n; err != nil {
			return moved, err
		}
	}
	if seen == schedule.SeenPart {
		moved = max(moved, 1) // rows that may be sent can be behind rows that stay: no pause
	}
	return moved, nil
}

// chosen are the held rows that are sent now.
type chosen struct {
	queues []*queue
	send   []*outboxdb.Row // the rows of all queues
	apart  []*outboxdb.Row // heads that are sent apart from the others, because they may kill the process
	cut    bool            // a row did not fit into Config.BatchBytes; it stays due, and the next look finds it
}

// choose makes dead letters of expired rows, and chooses the rows to send among the others.
func (h *heldRows) choose(ctx context.Context, lanes map[int16]*progress.Lane, due []lanedb.DueRow) (now chosen, moved int, err error) {
	if due, moved, err = h.queues.expire(ctx, lanes, due); err != nil {
		return now, moved, err
	}
	// The followers of each head have to fit into what the rows before have left of Config.BatchBytes. The first row
	// comes whatever its size, or it would never leave.
	bytes := int64(0)
	for i := range due {
		l := lanes[due[i].Lane]
		// Before its queue is read: a row that may kill the process goes without the rows behind it.
		if l.InFlight.HasHeld(&due[i]) {
			now.apart = append(now.apart, &due[i].Row)
			continue
		}
		left := h.bytes - bytes
		if h.bytes > 0 {
			left = max(left, 1) // 0 would mean no bound
		}
		if h.bytes > 0 && bytes > 0 && int64(len(due[i].Payload)) > left {
			now.cut = true
			break
		}
		q, err := h.queues.queueOf(ctx, l, &due[i].Row, left)
		if err != nil {
			return now, moved, err
		}
		if q == nil {
			continue
		}
		q.from = len(now.send)
		now.send = append(now.send, q.rows...)
		now.queues = append(now.queues, q)
		for _, r := range q.rows {
			bytes += int64(len(r.Payload))
		}
	}
	return now, moved, nil
}

// untilDue returns the time for which the worker need not look for held rows. It asks the database only if the answer
// is not known.
func (h *heldRows) untilDue(ctx context.Context) (time.Duration, error) {
	const never = time.Duration(math.MaxInt64)
	if !h.due.Known && !h.due.Last.IsZero() { // else the lanes were not ready for a look
		ctx, cancel := h.limit.bounded(ctx)
		defer cancel()
		// The last look came after the question before. What is due since that question and was left alone costs one look more.
		next, err := h.db.Held.NextDue(ctx, h.owned.Numbers(), h.due.Asked)
		if err != nil {
			return 0, err
		}
		h.due.Known, h.due.Next, h.due.Asked = true, time.Time{}, next.Asked
		if next.Some {
			h.due.Next = time.Now().Add(max(next.In, 0) + time.Millisecond)
		}
	}
	if h.due.Next.IsZero() {
		return never, nil
	}
	return max(time.Until(h.due.Next), 0), nil
}

// lookDue returns held rows that may be tried now. While topics or tenants are left alone, it reads each row that
// stays only once, however long it stays.
func (h *heldRows) lookDue(ctx context.Context, lanes []*progress.Lane) ([]lanedb.DueRow, schedule.DueSeen, error) {
	stay := h.stay.staying()
	if len(stay.Topics)+len(stay.Tenants) == 0 {
		due, all, err := h.db.Held.Due(ctx, numbersOf(lanes), h.bytes)
		if all {
			return due, schedule.SeenAll, err
		}
		return due, schedule.SeenMost, err
	}
	after := make([]lanedb.DueInfo, len(lanes))
	byLane := map[int16]*progress.Lane{}
	for i, l := range lanes {
		after[i] = l.Held.To
		after[i].Lane = l.Lease.Lane
		byLane[l.Lease.Lane] = l
	}
	// The look reads numbers, topics and tenants. Payloads are read of the rows that may leave, and no others: all rows
	// of a topic in trouble may be due.
	infos, err := h.db.Held.ScanDue(ctx, after)
	if err != nil {
		return nil, schedule.SeenMost, err
	}
	ids, looked := schedule.ChooseDue(infos, stay, lanedb.MaxDue, func(n int16) *schedule.HeldSearch { return &byLane[n].Held })
	seen := schedule.SeenMost
	for _, a := range after {
		// A full window, and the search has moved on: the rows behind the window were not looked at.
		if looked[a.Lane] == lanedb.ScanWindow && byLane[a.Lane].Held.To.RowID != a.RowID {
			seen = schedule.SeenPart
		}
	}
	if len(ids) == 0 {
		return nil, seen, nil
	}
	due, err := h.db.Held.FetchDueRows(ctx, ids, h.bytes)
	return due, seen, err
}

func numbersOf(lanes []*progress.Lane) []int16 {
	out := make([]int16, len(lanes))
	for i, l := range lanes {
		out[i] = l.Lease.Lane
	}
	return out
}

// mostReleased is the largest number of keys that one pass releases. An operator may discard the dead letters of many
// more keys at once.
const mostReleased = 500

// release handles keys that are stalled: they are blocked, but none of their rows is due or ever will be, because an
// operator discarded the head. It makes the next row of each key due, or lifts the block if there is no row. Until
// then, new events of such a key become held rows, so the order is kept.
func (h *heldRows) release(ctx context.Context, group []*progress.Lane) (moved int, err error) {
	lanes := map[int16]*progress.Lane{}
	var ids []outboxdb.RowID
	var keys []lanedb.LaneKey
	for _, l := range group {
		if !l.Blocks.AreKnown() {
			continue
		}
		stalled := l.Blocks.TakeStalled(mostReleased - len(keys))
		if len(stalled) == 0 {
			continue
		}
		for _, key := range stalled {
			keys = append(keys, lanedb.LaneKey{Lane: l.Lease.Lane, Key: key})
		}
		lanes[l.Lease.Lane] = l
		ids = append(ids, outboxdb.RowID{Lane: l.Lease.Lane})
	}
	if len(keys) == 0 {
		return 0, nil
	}
	ctx, cancel := h.limit.begun(ctx)
	defer cancel()
	*h.due = schedule.DueTime{} // the next rows of these keys become due, perhaps earlier than all others
	leases := loadedLeasesOf(lanes, ids)
	lifted, held, err := h.db.Held.ReleaseKeys(ctx, leases, keys)
	if err = h.settle.forgetUnless(ctx, lanes, leases, held, err); err != nil {
		return 0, err
	}
	for _, k := range lifted {
		lanes[k.Lane].Blocks.Lift(k.Key)
	}
	// Keys, and not rows: a key without a row left counts too, because its block is gone, and new rows of it may leave.
	return len(keys), nil
}
