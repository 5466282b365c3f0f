package projector

import (
	"context"
	"hash/maphash"
	"maps"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// skip is the progress of a search through a lane for rows that may leave before the rows in front of them. The
// search does not read the same rows again and again: it remembers what it has passed.
//
// That is right for one filter. If the filter keeps more topics or tenants later, the progress stays true. If it
// keeps fewer, rows that were passed may leave now, and the search begins again at the head.
//
// The search never passes the mark. A row could still appear below its position there, and a later row of the same
// key must not have been published by then.
type skip struct {
	to    int64            // the search has passed all rows up to this number
	stuck int64            // the mark at which the search could get no further; it is useless to try before the mark has moved
	keys  pausedKeys       // keys of paused rows; later rows of these keys wait
	first map[string]int64 // paused topics, and the first row of each that was seen
}

// saw records a row of a paused topic.
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

// picked is the result of a pick.
type picked struct {
	moved  int            // the number of rows that left their lanes
	rows   []outboxdb.Row // the rows that were fetched
	more   bool           // the search can go on
	beyond map[int16]bool // lanes with rows behind the last row that was looked at or taken
}

// pick publishes a batch of rows that the filter lets through, wherever in the lanes they are. which returns the
// search of a lane that goes on here.
//
// The steps are a scan, which reads the keys and topics of rows but no payloads; a choice among them; and a fetch,
// publication and settle of the chosen rows. The position of a search moves up to the last row that was looked at,
// but not beyond the mark, and not if a row of the lane stayed for another try: this row has to be found again.
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
		// No row has been left in front of these rows, so they count as the heads of the lane.
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

// extent is the stretch of a lane that one scan has seen.
type extent struct {
	to    int64
	more  bool // there are rows beyond it
	whole bool // all of its rows are chosen
}

// choose takes rows that may leave, about a batch, in equal parts from all lanes that have such rows. Otherwise a
// lane with a backlog would be served to its end before the next one. A row may leave if the filter lets it through,
// and no paused row of its key is in front of it.
//
// It goes on behind a full part, because a paused row that comes later has to be recorded too.
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

// part returns the number of rows to take from each lane, so that all lanes with rows make about one batch together.
func (w *worker) part(infos []lanedb.RowInfo) int {
	lanes := map[int16]bool{}
	for _, g := range infos {
		if g.Pass {
			lanes[g.Lane] = true
		}
	}
	return max(1, w.batch(len(lanes))/max(1, len(lanes)))
}
