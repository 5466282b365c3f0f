package projector

import (
	"context"
	"errors"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// errExpired is why a row is dead that nobody wants any more.
var errExpired = errors.New("expired before it was published")

// expire makes the due rows that have expired dead letters, all of them at once, and returns the others. A backlog of them
// may be in front of rows that are still wanted.
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

// isTurn tells whether the block of a row that is due agrees with that.
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

// giveUp makes held rows dead letters. blocks is that of [batch.die]. It returns how many it has moved.
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

// loadedLeasesOf is leasesOf with the counters at which the blocks were read.
func loadedLeasesOf(lanes map[int16]*lane, ids []outboxdb.RowID) (leases []lanedb.LoadedLease) {
	for _, l := range leasesOf(lanes, ids) {
		leases = append(leases, lanedb.LoadedLease{Lease: l, Change: lanes[l.Lane].loaded})
	}
	return leases
}

// forgetUnless is forget for all lanes of a write, except where it is known that it was done.
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
