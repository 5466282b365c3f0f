package projector

import (
	"context"
	"errors"
	"sync"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/projector/internal/leases"
	"github.com/oncebox/oncebox/projector/internal/progress"
)

// isolator sends rows that were in flight when a former owner died: one of them may have killed it. A process
// that is killed cannot write afterwards, so the count of a row must be in the database before the row is handed over.
type isolator struct {
	db      lanedb.Lanes
	alone   *sync.Mutex // held by the worker of the relay that isolates rows
	wakeAll func()      // makes all workers look at their lanes
	owned   *leases.Owned
	publish *publisher
	settle  *settler
	queues  *queues
	rules   *progress.Rules
}

// isolated ends a time in which one worker sent rows that had been in flight. Another worker that wanted to do the
// same meanwhile has left its rows where they are, see isolate. So all workers look again.
func (i *isolator) isolated() {
	i.alone.Unlock()
	i.wakeAll()
}

// isolate sends the rows of a batch that were in flight. Each attempt is counted before it begins and the count is
// committed; after the attempt it is taken back. So a count that a successor finds belongs to one of the last things
// that some projector did.
//
// An outage of the broker is not a crash. Each process counts a row at its first attempt only, and takes that back
// when the publication ends, with whatever answer. Rows that the process has survived are cleared, and go with all
// other rows from then on.
//
// Only one worker of the relay isolates at a time. If two did, a crash would count against the rows of both. A worker
// that finds the lock taken leaves its rows where they are, and isolated wakes it.
func (i *isolator) isolate(ctx context.Context, lanes map[int16]*progress.Lane, rows []*outboxdb.Row) (moved int, err error) {
	if !i.alone.TryLock() {
		return 0, nil
	}
	defer i.isolated()
	for _, group := range progress.GroupsOf(rows) {
		// Before the count: if the process died in between, a row that was counted and not sent would look as if it had
		// been on its way.
		if !i.owned.MayPublish(lanes, group) {
			continue
		}
		one := progress.NewBatch(lanes, i.rules)
		if reason, kills := i.rules.Kills(group[0]); kills {
			// Nothing is sent. The group is this one row: rows that are counted are groups of their own.
			one.Die(group[0], reason, i.rules.BlocksDead)
		} else if err := i.countAttempt(ctx, lanes, group, false); err != nil {
			return moved, err
		} else {
			one.Send = group
			errs := i.publish.publish(ctx, lanes, group)
			lived(lanes, group, errs)
			one.Judge(errs)
		}
		err := i.settle.settle(ctx, one)
		moved += one.Moved
		// Rows that have left took their counts along. The process has survived the others, so their counts go as well.
		if len(one.Send) > 0 && (err != nil || len(one.Left) > 0) {
			err = errors.Join(err, i.clearAttempt(ctx, lanes, group, false))
		}
		if err = errors.Join(err, one.Trouble); err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// isolateHeld is isolate for held rows. Of each key only the head is sent.
func (i *isolator) isolateHeld(ctx context.Context, lanes map[int16]*progress.Lane, rows []*outboxdb.Row) (moved int, err error) {
	if !i.alone.TryLock() {
		return 0, nil
	}
	defer i.isolated()
	for _, group := range progress.GroupsOf(rows) {
		var queues []*queue
		var send []*outboxdb.Row
		for _, r := range group {
			q, err := i.queues.queueOf(ctx, lanes[r.Lane], r, headOnly)
			if err != nil {
				return moved, err
			}
			if q != nil {
				q.rows, q.from = q.rows[:1], len(send)
				send = append(send, r)
				queues = append(queues, q)
			}
		}
		n, err := i.sendHeads(ctx, lanes, queues, send)
		if moved += n; err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// sendHeads counts the heads of queues, publishes and settles them. If not all of them have left, the counts are
// taken back.
func (i *isolator) sendHeads(ctx context.Context, lanes map[int16]*progress.Lane, queues []*queue, send []*outboxdb.Row) (moved int, err error) {
	if len(send) == 0 || !i.owned.MayPublish(lanes, send) {
		return 0, nil
	}
	if reason, kills := i.rules.Kills(send[0]); kills {
		return i.settle.giveUp(ctx, lanes, send, reason, i.rules.BlocksDead)
	}
	if err := i.countAttempt(ctx, lanes, send, true); err != nil {
		return 0, err
	}
	errs := i.publish.publish(ctx, lanes, send)
	lived(lanes, send, errs)
	moved, err = i.queues.settleQueues(ctx, queues, errs)
	if err != nil || moved < len(send) {
		err = errors.Join(err, i.clearAttempt(ctx, lanes, send, true))
	}
	return moved, err
}

// countAttempt counts rows that are about to be sent. If one of them does not belong to this worker any more, the
// lanes of all of them are in doubt, and publish leaves all rows where they are.
func (i *isolator) countAttempt(ctx context.Context, lanes map[int16]*progress.Lane, rows []*outboxdb.Row, held bool) (err error) {
	leases, ids := identify(lanes, rows)
	counted := i.db.Moves.CountAttempt(ctx, leases, ids, held)
	for _, l := range leases {
		err = i.settle.forget(ctx, lanes[l.Lane], counted)
	}
	return err
}

// clearAttempt takes the counts of rows back that have not left.
func (i *isolator) clearAttempt(ctx context.Context, lanes map[int16]*progress.Lane, rows []*outboxdb.Row, held bool) error {
	leases, ids := identify(lanes, rows)
	return i.db.Moves.ClearAttempt(ctx, leases, ids, held)
}

// lived records that this process has survived the publication of rows. Rows that were not handed over (errInDoubt)
// prove nothing.
func lived(lanes map[int16]*progress.Lane, rows []*outboxdb.Row, errs map[int]error) {
	for i, r := range rows {
		if !errors.Is(errs[i], errInDoubt) {
			lanes[r.Lane].InFlight.Cleared[r.Sequence] = true
		}
	}
}

// identify returns the leases of the rows' lanes and the rows' numbers, as statements want them.
func identify(lanes map[int16]*progress.Lane, rows []*outboxdb.Row) (leases []lanedb.Lease, ids []outboxdb.RowID) {
	for _, r := range rows {
		ids = append(ids, outboxdb.RowID{Lane: r.Lane, Seq: r.Sequence})
	}
	return progress.LeasesOf(lanes, ids), ids
}
