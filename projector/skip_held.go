package projector

import (
	"context"
	"slices"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// heldSkip is how far, in the order in which they became due, the held rows of a lane were searched for those that do not
// stay: everything up to there does. It holds as long as no topic or tenant comes back, as skip does, and no operator acts:
// what the worker itself holds becomes due later than all that it has looked at.
type heldSkip struct {
	to    lanedb.DueInfo
	first map[string]outboxdb.RowID // paused topics, and the first due row of each
}

// dueSeen is how much of what is due was seen.
type dueSeen int

const (
	seenAll  dueSeen = iota
	seenMost         // the rest stays, or is more than is taken at once
	seenPart         // there may be rows behind those that stay
)

// lookDue returns held rows that may be tried now. It reads each row that stays once, however long it does.
func (w *worker) lookDue(ctx context.Context, lanes []*lane) ([]lanedb.DueRow, dueSeen, error) {
	stay := w.staying()
	if len(stay.Topics)+len(stay.Tenants) == 0 {
		due, all, err := w.r.lanes.Held.Due(ctx, numbersOf(lanes), w.r.p.cfg.batchBytes())
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
	infos, err := w.r.lanes.Held.ScanDue(ctx, after)
	if err != nil {
		return nil, seenMost, err
	}
	var ids []outboxdb.RowID
	looked, open := map[int16]int{}, map[int16]bool{} // open: a row before this one may be tried
	for _, g := range infos {
		held := &byLane[g.Lane].held
		looked[g.Lane]++
		tenant := slices.Contains(stay.Tenants, g.Tenant)
		if !tenant && !slices.Contains(stay.Topics, g.Topic) {
			open[g.Lane] = true
			if len(ids) < lanedb.MaxDue {
				ids = append(ids, g.RowID)
			}
			continue
		}
		if _, known := held.first[g.Topic]; !known && !tenant {
			if held.first == nil {
				held.first = map[string]outboxdb.RowID{}
			}
			held.first[g.Topic] = g.RowID
		}
		if !open[g.Lane] {
			held.to = g
		}
	}
	seen := seenMost
	for _, a := range after {
		if looked[a.Lane] == lanedb.ScanWindow && byLane[a.Lane].held.to.RowID != a.RowID {
			seen = seenPart
		}
	}
	if len(ids) == 0 {
		return nil, seen, nil
	}
	due, err := w.r.lanes.Held.FetchDueRows(ctx, ids, w.r.p.cfg.batchBytes())
	return due, seen, err
}

func numbersOf(lanes []*lane) []int16 {
	out := make([]int16, len(lanes))
	for i, l := range lanes {
		out[i] = l.lease.Lane
	}
	return out
}
