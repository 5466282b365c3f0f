package lanedb

import (
	"context"
	"slices"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// A delayed event may be cancelled or moved in a transaction that stays open for any time, while projectors read. These rules
// make sure that no event is published that a committed transaction has cancelled:
//
//  1. Store.Delayed().Cancel and Store.Delayed().Reschedule lock the row. Only then they compare the clock with not_before, and they are too late
//     unless the time is still ahead. The lock lasts to the end of their transaction.
//  2. A projector publishes such a row only from outbox_held, see [Moves.Delay], only when its time has come, and only after it
//     found the row without a lock, see uncancelled.
//
// The clock is that of the server and goes forward. So if a projector finds the row without a lock, either the other transaction has
// ended, and the row is gone or has another time; or it locks the row later than that, when the time has come, and is too late.
// Projectors never wait for a lock of such a transaction: they pass by the row and look again.
const (
	// delayRows takes delayed rows without order out of their lanes. They block nothing.
	delayRows = settleFence + `,
free AS MATERIALIZED (
	SELECT o.lane, o.seq FROM {schema}.outbox o JOIN unnest($4::smallint[], $5::bigint[]) a(lane, seq) USING (lane, seq)
	WHERE o.lane IN (SELECT lane FROM lane) AND ` + sameServer + `$6::text FOR UPDATE OF o SKIP LOCKED),
gone AS (
	DELETE FROM {schema}.outbox o USING free f WHERE o.lane = f.lane AND o.seq = f.seq RETURNING o.*),
held AS (
	INSERT INTO {schema}.outbox_held ({columns}, retry_after)
	SELECT {columns}, greatest(clock_timestamp(), not_before) FROM gone)
SELECT lane.lane, coalesce(gone.seq, 0) FROM lane LEFT JOIN gone ON gone.lane = lane.lane WHERE ` + sameServer + `$6::text`

	// unlockedRows asks again for the time: the lock of a transaction that has ended since may have hidden another one.
	unlockedRows = `
SELECT h.lane, h.seq FROM ` + asynchronous + ` {schema}.outbox_held h JOIN unnest($1::smallint[], $2::bigint[]) a(lane, seq) USING (lane, seq)
WHERE h.not_before <= (SELECT clock_timestamp()) AND h.retry_after <= (SELECT clock_timestamp()) FOR UPDATE OF h SKIP LOCKED`
)

// Delay takes delayed rows without an ordering key out of their lanes. They are due when their time has come. It
// returns the rows that it has taken, and the lanes that were still held. A row of such a lane that stays is being
// cancelled or moved, or was cancelled.
func (s Moves) Delay(ctx context.Context, leases []Lease, ids []outboxdb.RowID) (delayed []outboxdb.RowID, held map[int16]bool, err error) {
	owner, lanes, epochs := split(leases)
	rowLanes, seqs := splitIDs(ids)
	held = map[int16]bool{}
	rows := s.box.Run.Query(ctx, s.box.DB, delayRows, owner, lanes, epochs, rowLanes, seqs, incarnationOf(leases))
	err = pgsql.Each(rows, func(scan pgsql.Scan) error {
		var id outboxdb.RowID
		if err := scan(&id.Lane, &id.Seq); err != nil {
			return err
		}
		if held[id.Lane] = true; id.Seq > 0 {
			delayed = append(delayed, id)
		}
		return nil
	})
	return delayed, held, outboxdb.Wrap("delay rows", err)
}

// uncancelled leaves out the timed rows that a transaction is about to cancel or move, or has since they were read.
func (s Held) uncancelled(ctx context.Context, due []DueRow) ([]DueRow, error) {
	var ids []outboxdb.RowID
	for i := range due {
		if due[i].IsTimed() {
			ids = append(ids, outboxdb.RowID{Lane: due[i].Lane, Seq: due[i].Sequence})
		}
	}
	if len(ids) == 0 {
		return due, nil
	}
	lanes, seqs := splitIDs(ids)
	free := map[outboxdb.RowID]bool{}
	err := pgsql.Each(s.box.Run.Query(ctx, s.box.DB, unlockedRows, lanes, seqs), func(scan pgsql.Scan) error {
		var id outboxdb.RowID
		if err := scan(&id.Lane, &id.Seq); err != nil {
			return err
		}
		free[id] = true
		return nil
	})
	return slices.DeleteFunc(due, func(h DueRow) bool { return h.IsTimed() && !free[outboxdb.RowID{Lane: h.Lane, Seq: h.Sequence}] }), err
}
