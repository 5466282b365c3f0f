package projector

import (
	"context"
	"errors"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// errExpired is the reason of a dead letter that had expired before it could be published.
var errExpired = errors.New("expired before it was published")

// expire makes dead letters of the due rows that have expired, all at once, and returns the other due rows. There may
// be thousands of expired rows in front of rows that are still wanted, and one write for each of them would take too
// long.
func (w *worker) expire(ctx context.Context, lanes map[int16]*lane, due []lanedb.DueRow) (alive []lanedb.DueRow, moved int, err error) {
	var expired []*outboxdb.Row
	for i := range due {
		r := &due[i].Row
		l := lanes[r.Lane]
		switch {
		case !r.Expired:
			alive = append(alive, due[i])
		case w.isTurn(l, r):
			expired = append(expired, r)
		}
	}
	moved, err = w.giveUp(ctx, lanes, expired, errExpired.Error(), w.r.p.cfg.blocksExpired)
	return alive, moved, err
}

// isTurn reports whether the block of its key allows a due row to be sent: there is a block, and it is not that of a
// dead letter. If not, the blocks that the worker remembers, or the row, are wrong, see doubt.
func (w *worker) isTurn(l *lane, r *outboxdb.Row) bool {
	if r.Key == "" {
		return true
	}
	if state, blocked := l.blocks[r.Key]; !blocked || state == stateDead {
		w.doubt(l)
		return false
	}
	return true
}

// giveUp makes held rows dead letters. blocks is the same as in [batch.die]. It returns how many rows it has moved.
// Rows of lanes whose blocks are unknown stay, because the lane's counter would not match and the write would be
// refused.
func (w *worker) giveUp(
	ctx context.Context, lanes map[int16]*lane, rows []*outboxdb.Row, reason string, blocks func(topic string) bool,
) (moved int, err error) {
	outcomes := map[outboxdb.RowID]lanedb.HeldOutcome{}
	var list []lanedb.HeldOutcome
	var ids []outboxdb.RowID
	byID := map[outboxdb.RowID]*outboxdb.Row{}
	for _, r := range rows {
		if lanes[r.Lane].loaded < 0 {
			continue
		}
		o := lanedb.HeldOutcome{RowID: outboxdb.RowID{Lane: r.Lane, Seq: r.Sequence}, Verdict: lanedb.Dead, Error: reason}
		if !blocks(r.Topic) {
			o.Verdict = lanedb.Abandoned
		}
		outcomes[o.RowID], byID[o.RowID] = o, r
		list, ids = append(list, o), append(ids, o.RowID)
	}
	if len(list) == 0 {
		return 0, nil
	}
	leases := loadedLeasesOf(lanes, ids)
	gone, held, err := w.r.lanes.Held.GiveUpHeld(ctx, leases, list)
	if err = w.forgetUnless(ctx, lanes, leases, held, err); err != nil {
		return 0, err
	}
	for _, g := range gone {
		o, r, l := outcomes[g.RowID], byID[g.RowID], lanes[g.Lane]
		switch {
		case r.Key != "" && o.Verdict == lanedb.Dead:
			l.blocks[r.Key] = stateDead
		case g.Lifted:
			delete(l.blocks, r.Key)
		}
		w.report(ctx, r, lanedb.Outcome{Seq: g.Seq, Verdict: o.Verdict, Error: o.Error})
	}
	return len(gone), nil
}

// loadedLeasesOf is leasesOf with the operators' counters at which the blocks were read. The write does nothing in
// lanes whose counter has changed.
func loadedLeasesOf(lanes map[int16]*lane, ids []outboxdb.RowID) (leases []lanedb.LoadedLease) {
	for _, l := range leasesOf(lanes, ids) {
		leases = append(leases, lanedb.LoadedLease{Lease: l, Change: lanes[l.Lane].loaded})
	}
	return leases
}

// forgetUnless marks the blocks of all lanes of a write as unknown, except of lanes whose write is confirmed (held).
func (w *worker) forgetUnless(ctx context.Context, lanes map[int16]*lane, leases []lanedb.LoadedLease, held map[int16]bool, err error) error {
	for _, l := range leases {
		switch {
		case err != nil:
			_ = w.forget(ctx, lanes[l.Lane], err)
		case !held[l.Lane]:
			_ = w.forget(ctx, lanes[l.Lane], lanedb.ErrFenced)
		}
	}
	return err
}
