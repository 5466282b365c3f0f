package projector

import (
	"context"
	"hash/maphash"
	"maps"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// skip is how far into a lane rows were searched for that may leave before those in front of them. It holds for one
// filter: more may be filtered out later, but when anything less is, the search begins anew at the head.
//
// It never passes the mark, because a row could still appear below it, and what comes after that row under its key must
// not have gone by.
type skip struct {
	to    int64
	stuck int64            // the mark at which a search could get no further: it is of no use before the mark has moved
	keys  pausedKeys       // what comes later under one of them waits
	first map[string]int64 // paused topics, and the first row of each that was seen
}

// saw notes a paused row.
func (s *skip) saw(topic string, seq int64) {
	if s.first == nil {
		s.first = map[string]int64{}
	}
	if first, ok := s.first[topic]; !ok || seq < first {
		s.first[topic] = seq
	}
}

func (s *skip) clone() skip {
	return skip{to: s.to, stuck: s.stuck, keys: s.keys.clone(), first: maps.Clone(s.first)}
}

// picked is what a pick did.
type picked struct {
	moved  int
	rows   []outboxdb.Row
	more   bool           // there is more to look at
	beyond map[int16]bool // lanes that have rows beyond those that were looked at or taken
}

// pick publishes rows that the filter lets through, from wherever in the lanes they are. which says for what the lanes
// remember their position.
func (w *worker) pick(ctx context.Context, group []*lane, keep lanedb.Filter, which func(*lane) *skip) (p picked, err error) {
	ctx, cancel := w.r.begun(ctx)
	defer cancel()
	if same, err := w.isSameServer(ctx); !same {
		return p, err
	}
	low := w.r.mark.current() // before the scan begins, see watermark
	byLane := map[int16]*lane{}
	cursors := make([]lanedb.Cursor, len(group))
	for i, l := range group {
		byLane[l.lease.Lane] = l
		cursors[i] = lanedb.Cursor{Lease: l.lease, Position: l.at, After: which(l).to}
	}
	infos, err := w.r.lanes.Log.Scan(ctx, cursors, keep)
	if err != nil {
		return p, err
	}
	ids, seen := w.choose(infos, byLane, which)
	b := newBatch(byLane)
	b.low = low
	for n, s := range seen {
		// Nothing has been left in front of these rows, so they leave as the heads of the lane.
		b.inTurn[n] = s.whole && which(byLane[n]).to <= byLane[n].at.Sent
	}
	if len(ids) > 0 {
		if p.rows, err = w.fetchPicked(ctx, byLane, ids); err != nil {
			return p, err
		}
		b, err = w.deliver(ctx, b, p.rows)
		if p.moved = b.moved; err != nil {
			return p, err
		}
	}
	p.beyond = map[int16]bool{}
	for n, s := range seen {
		p.beyond[n] = s.more || b.cut[n]
		p.more = p.more || b.cut[n] && b.moved > 0
		// What stayed for another try is looked at again.
		position := which(byLane[n])
		if s.to > low {
			position.stuck = low
		}
		if !b.left[n] && min(s.to, low) > position.to {
			position.to = min(s.to, low)
			p.more = p.more || s.more && position.stuck != low
		}
	}
	return p, nil
}

// extent is how far one scan saw into a lane, and whether there are rows beyond. whole says that all rows up to there are to leave.
type extent struct {
	to    int64
	more  bool
	whole bool
}

// choose takes the rows that may leave, about a batch, in equal parts from the lanes that have any: else one lane with a
// backlog would be served to its end before the next.
func (w *worker) choose(infos []lanedb.RowInfo, lanes map[int16]*lane, which func(*lane) *skip) ([]outboxdb.RowID, map[int16]extent) {
	var ids []outboxdb.RowID
	seen := map[int16]extent{}
	full, left := map[int16]bool{}, map[int16]bool{}
	part, taken := w.part(infos), map[int16]int{}
	for _, g := range infos {
		position := which(lanes[g.Lane])
		key := maphash.String(w.r.seed, g.Key)
		if g.Paused {
			position.saw(g.Topic, g.Seq)
		}
		if g.Paused && g.Key != "" {
			position.keys.pause(key, g.Seq)
		}
		if full[g.Lane] {
			continue
		}
		if g.Pass && (g.Key == "" || !position.keys.waits(key, g.Seq)) {
			if taken[g.Lane] == part {
				full[g.Lane] = true
				seen[g.Lane] = extent{to: g.Seq - 1, more: true, whole: !g.Kept && !left[g.Lane]}
				continue
			}
			taken[g.Lane]++
			ids = append(ids, g.RowID)
		} else {
			left[g.Lane] = true
		}
		seen[g.Lane] = extent{to: g.Seq, more: g.More, whole: !g.Kept && !left[g.Lane]}
	}
	return ids, seen
}

// part is how many rows of one lane make a batch together with those of the others.
func (w *worker) part(infos []lanedb.RowInfo) int {
	lanes := map[int16]bool{}
	for _, g := range infos {
		if g.Pass {
			lanes[g.Lane] = true
		}
	}
	return max(1, w.batch(len(lanes))/max(1, len(lanes)))
}
