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

// catchUp publishes the rows that fetches have jumped over on a shortcut.
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
func (c *catchUp) late(ctx context.Context, group []*progress.Lane) (moved int, err error) {
	ctx, cancel := c.limit.begun(ctx)
	defer cancel()
	found, err := c.scan.rows(ctx, group)
	b, cursors := progress.LateBatch(group, found.Low, found.Short, c.send.rules)
	if err != nil || !found.All {
		return 1, err // the fetches have to find the rows: no pause
	}
	var ids []outboxdb.RowID
	for _, c := range cursors {
		for _, seq := range found.Rows[c.Lease.Lane] {
			if seq <= c.After && !c.Position.Has(seq) {
				ids = append(ids, outboxdb.RowID{Lane: c.Lease.Lane, Seq: seq})
			}
		}
	}
	moved, err = c.deliverAll(ctx, b, ids)
	if err != nil {
		return moved, err
	}
	b.Advance(group)
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

// lateScan looks for the rows that a shortcut has left behind, for all workers of a relay.
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
