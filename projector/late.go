package projector

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/projector/internal/leases"
	"github.com/oncebox/oncebox/projector/internal/progress"
)

// catchUp publishes the rows that fetches have jumped over on a shortcut. They belong to transactions that were open for
// long, and are visible only since these have ended.
type catchUp struct {
	scan  *lateScan
	send  *sender
	limit limit
}

// late publishes the rows of the transactions that a shortcut has jumped over, when one of them has ended.
//
// A fetch would find these rows too. But it would walk over the dead index entries of all rows that left meanwhile,
// which can be millions, and it would do so in each lane. A scan by pages of the table is much cheaper. Each stretch
// is tried once: if there are too many rows, or a row stays, the fetches do the rest.
//
// All rows of the stretch leave here, one batch after the other, and no tenant has a turn meanwhile. So the fetches do the
// work if a worker has more rows than a batch and the stretch is dense, see LateRows.IsDense: fetches give the other
// tenants their turns.
func (c *catchUp) late(ctx context.Context, group []*progress.Lane) (moved int, err error) {
	ctx, cancel := c.limit.begun(ctx)
	defer cancel()
	// The batch is made before the error is looked at. Making it takes the lanes off the shortcut, so the next pass does
	// not come here again for the same stretch.
	found, err := c.scan.rows(ctx, group)
	b, cursors := progress.LateBatch(group, found.Low, found.Short, c.send.rules)
	if err != nil || !found.All {
		return 1, err // the fetches have to find the rows: no pause
	}
	var ids []outboxdb.RowID
	for _, c := range cursors {
		for _, seq := range found.Rows[c.Lease.Lane] {
			// The scan served lanes that came further. Beyond c.After this lane has jumped over nothing, and a fetch
			// finds its rows. Rows that the position covers are published and still in the table.
			if seq <= c.After && !c.Position.Has(seq) {
				ids = append(ids, outboxdb.RowID{Lane: c.Lease.Lane, Seq: seq})
			}
		}
	}
	if len(ids) > c.send.fetch.size && found.IsDense() {
		return 1, nil
	}
	moved, err = c.deliverAll(ctx, b, ids)
	if err != nil {
		return moved, err
	}
	b.Advance(group)
	// The end of the stretch is written down at once. With the next rows of the lane it might take hours, and until then
	// the next owner, and each query of the views, would read the whole stretch.
	_, err = c.send.settle.settleFresh(ctx, b.Lanes, b.Reached())
	return max(1, moved), err
}

// deliverAll publishes rows that a scan has found, in batches. If a row of a lane stays, all later rows of this lane
// stay too: they may be of the same key. Rows that did not fit into the bytes of a batch come first in the next one.
func (c *catchUp) deliverAll(ctx context.Context, all *progress.Batch, ids []outboxdb.RowID) (moved int, err error) {
	for len(ids) > 0 {
		part := ids[:min(len(ids), c.send.fetch.batch(len(all.Lanes)))]
		rows, err := c.send.fetch.fetchPicked(ctx, all.Lanes, part)
		if err != nil {
			return moved, err
		}
		// Cut rows are taken out before the batch sorts them: it would count them as left in their lanes.
		cut := map[int16]int64{}
		rows = slices.DeleteFunc(rows, func(r outboxdb.Row) bool {
			if r.Cut {
				cut[r.Lane] = r.Sequence
			}
			return r.Cut
		})
		b, err := c.send.deliver(ctx, progress.NewBatch(all.Lanes, c.send.rules), rows)
		if moved += b.Moved; err != nil {
			return moved, err
		}
		maps.Copy(all.Left, b.Left)
		var rest []outboxdb.RowID
		for i, id := range ids {
			begins, some := cut[id.Lane]
			if again := some && id.Seq >= begins; (again || i >= len(part)) && !all.Left[id.Lane] {
				rest = append(rest, id)
			}
		}
		ids = rest
	}
	return moved, nil
}

// lateScan looks for the rows that a shortcut has left behind, for all workers of a relay. One scan reads the pages of
// the table between the position of the lane that is furthest back and the end of the shortcut. Each worker would read
// the same pages, because the rows of all lanes lie mixed in the table.
type lateScan struct {
	log     lanedb.Log
	mark    *mark
	workers []*leases.Owned

	mu     sync.Mutex        // held while one worker scans
	latest progress.LateRows // the result of the last scan
}

// rows returns the rows in the log up to the furthest number that the lanes reached on a shortcut. The first worker
// that asks scans, the others wait for it and use its result.
func (s *lateScan) rows(ctx context.Context, group []*progress.Lane) (progress.LateRows, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	low, short := s.mark.now() // before the scan begins, see progress.Watermark
	if s.latest.Covers(group, short) {
		return s.latest, nil
	}
	f := progress.NewLateRows(group, low, short)
	// All lanes of this process, not only those of the worker that asks: the other workers come next with the same
	// question, and nearly each page that is read has rows of their lanes too.
	for _, w := range s.workers {
		for _, l := range w.Leases() {
			f.Of[l.Lane] = true
		}
	}
	s.latest = progress.LateRows{}
	ids, all, err := s.log.ScanLate(ctx, slices.Sorted(maps.Keys(f.Of)), f.From, f.To, group[0].Lease.Incarnation)
	if f.All = all; err != nil || !all {
		return f, err
	}
	for _, id := range ids {
		f.Rows[id.Lane] = append(f.Rows[id.Lane], id.Seq)
	}
	s.latest = f
	return f, nil
}
