package lanedb

import (
	"context"
	"math"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// A bounded read has the columns of outboxdb.RowColumns, but only the size of a payload that is large. The argument
// that says what is large stands between the two parts.
const (
	boundedStart = `{columns but payload}, CASE WHEN octet_length(payload) <= `
	boundedEnd   = `::int THEN payload END` + outboxdb.RowEnd + `, octet_length(payload)`
)

const readPayloads = `
SELECT o.lane, o.seq, o.payload FROM unnest($1::smallint[], $2::bigint[]) a(lane, seq)
JOIN {schema}.outbox o ON o.lane = a.lane AND o.seq = a.seq`

// small returns the largest payload that is read at once: if all rows had one of this size, they would still be
// within the bound.
func small(bytes int64, rows int) int32 {
	if bytes <= 0 {
		return math.MaxInt32
	}
	return int32(min(max(bytes/int64(max(rows, 1)), 1), math.MaxInt32))
}

// bounded reads the payloads that are missing after a bounded read, as long as all payloads together are within
// bytes. The rows are sorted by lane and sequence. If the next row of a lane does not fit, it is the last one of its
// lane, and is marked as cut, see [outboxdb.Row]. The lanes take turns, and each fetch begins with another lane, so
// that no lane waits for the others. The first row comes whatever its size.
func (s Log) bounded(ctx context.Context, rows []outboxdb.Row, bytes int64) ([]outboxdb.Row, error) {
	total, missing := int64(0), false
	for i := range rows {
		total += int64(rows[i].Size)
		missing = missing || rows[i].Size > len(rows[i].Payload)
	}
	if bytes <= 0 || total <= bytes && !missing {
		return rows, nil
	}
	lanes := splitLanes(rows)
	left := bytes
	first := int(s.box.Turn.Add(1) % uint64(len(lanes))) //nolint:gosec // it is less than the number of lanes
	whole := map[int]bool{}                              // lanes that have come to their end, or to a row that does not fit
	taken := make([]int, len(lanes))
	for len(whole) < len(lanes) {
		for i := range lanes {
			n := (first + i) % len(lanes)
			if whole[n] {
				continue
			}
			if taken[n] == len(lanes[n]) {
				whole[n] = true
				continue
			}
			row := &lanes[n][taken[n]]
			if int64(row.Size) > left && left < bytes {
				row.Cut, whole[n] = true, true
				continue
			}
			left -= int64(row.Size)
			taken[n]++
		}
	}
	return s.complete(ctx, lanes, taken)
}

func splitLanes(rows []outboxdb.Row) (lanes [][]outboxdb.Row) {
	from := 0
	for i := range rows {
		if i+1 == len(rows) || rows[i+1].Lane != rows[i].Lane {
			lanes = append(lanes, rows[from:i+1])
			from = i + 1
		}
	}
	return lanes
}

// complete returns the rows that were taken, with their payloads, and the rows that are cut.
func (s Log) complete(ctx context.Context, lanes [][]outboxdb.Row, taken []int) ([]outboxdb.Row, error) {
	var ids []outboxdb.RowID
	for n, rows := range lanes {
		for i := range rows[:taken[n]] {
			if r := &rows[i]; r.Size > len(r.Payload) {
				ids = append(ids, outboxdb.RowID{Lane: r.Lane, Seq: r.Sequence})
			}
		}
	}
	payloads, err := s.payloads(ctx, ids)
	if err != nil {
		return nil, err
	}
	var out []outboxdb.Row
	for n, rows := range lanes {
		for i := range rows {
			r := &rows[i]
			payload, read := payloads[outboxdb.RowID{Lane: r.Lane, Seq: r.Sequence}]
			switch {
			case i < taken[n] && r.Size == len(r.Payload):
			case i < taken[n] && read:
				r.Payload = payload
			default: // it does not fit, or it has gone
				r.Cut, r.Payload = true, nil
			}
			out = append(out, *r)
			if r.Cut {
				break
			}
		}
	}
	return out, nil
}

func (s Log) payloads(ctx context.Context, ids []outboxdb.RowID) (map[outboxdb.RowID][]byte, error) {
	if len(ids) == 0 {
		return nil, nil //nolint:nilnil // none
	}
	lanes, seqs := splitIDs(ids)
	out := make(map[outboxdb.RowID][]byte, len(ids))
	err := pgsql.Each(s.box.Run.Query(ctx, s.box.DB, readPayloads, lanes, seqs), func(scan pgsql.Scan) error {
		var id outboxdb.RowID
		var payload []byte
		if err := scan(&id.Lane, &id.Seq, &payload); err != nil {
			return err
		}
		out[id] = payload
		return nil
	})
	return out, err
}
