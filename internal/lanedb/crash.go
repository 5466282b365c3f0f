package lanedb

import (
	"context"

	"github.com/oncebox/oncebox/internal/outboxdb"
)

// A projector that dies leaves no note about the row that killed it. So its successor sends the rows that may have
// been on their way apart from all others, and counts each attempt before it begins. A count that is still there
// belongs to one of the last things that some projector did.
//
// The commit of a count does not wait for the disk. A count may be lost if the server crashes, but it is needed only
// if the projector dies and the server lives. The same is true of the note of a fetch.
const (
	countCrash     = settleFence + `UPDATE {schema}.outbox` + countOne
	countHeldCrash = settleFence + `UPDATE {schema}.outbox_held` + countOne
	clearCrash     = settleFence + `UPDATE {schema}.outbox` + countNone
	clearHeldCrash = settleFence + `UPDATE {schema}.outbox_held` + countNone

	countOne    = ` o SET crashes = least(o.crashes + 1, 32000)` + ofTheseRows
	countNone   = ` o SET crashes = 0` + ofTheseRows + ` AND o.crashes > 0`
	ofTheseRows = `
FROM unnest($4::smallint[], $5::bigint[]) a(lane, seq), lane
WHERE a.lane = lane.lane AND o.lane = a.lane AND o.seq = a.seq AND ` + sameServer + `$6::text`
)

// CountAttempt counts that the rows are about to be sent; held says which table they are in. It returns [ErrFenced] if a lane was
// lost or a row is gone. The others may be counted then.
func (s Moves) CountAttempt(ctx context.Context, leases []Lease, ids []outboxdb.RowID, held bool) error {
	statement := countCrash
	if held {
		statement = countHeldCrash
	}
	n, err := s.count(ctx, statement, leases, ids)
	if err == nil && n < int64(len(ids)) {
		return ErrFenced
	}
	return outboxdb.Wrap("count attempt", err)
}

// ClearAttempt takes the counts of rows back: the projector survived the attempt, whatever its result.
func (s Moves) ClearAttempt(ctx context.Context, leases []Lease, ids []outboxdb.RowID, held bool) error {
	statement := clearCrash
	if held {
		statement = clearHeldCrash
	}
	_, err := s.count(ctx, statement, leases, ids)
	return outboxdb.Wrap("clear attempt", err)
}

func (s Moves) count(ctx context.Context, statement string, leases []Lease, ids []outboxdb.RowID) (int64, error) {
	owner, lanes, epochs := split(leases)
	rowLanes, seqs := splitIDs(ids)
	return s.box.Run.Exec(ctx, s.box.DB, statement, owner, lanes, epochs, rowLanes, seqs, incarnationOf(leases))
}
