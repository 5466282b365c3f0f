package projector

import (
	"context"
	"slices"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// heldSkip is the progress of a search through the held rows of a lane, in the order in which they became due: all
// rows up to its position stay. It is true as long as no topic or tenant comes back, as with skip, and no operator
// acts. Rows that the worker itself holds meanwhile become due later than all rows that it has looked at.
type heldSkip struct {
	to    lanedb.DueInfo
	first map[string]outboxdb.RowID // paused topics, and the first due row of each
}

// dueSeen says how much of the due rows a look has seen.
type dueSeen int

const (
	seenAll  dueSeen = iota // all of them, and all were returned
	seenMost                // the other rows stay, or are more than one look returns
	seenPart                // there may be rows to send behind the rows that stay
)

// lookDue returns held rows that may be tried now. While topics or tenants are left alone, it reads each row that
// stays only once, however long it stays.
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
