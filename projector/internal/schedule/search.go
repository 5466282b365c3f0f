package schedule

import (
	"hash/maphash"
	"maps"
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// Search is the progress of a search through a lane for rows that may leave before the rows in front of them. The
// search does not read the same rows again and again: it remembers what it has passed.
//
// That is right for one filter. If the filter keeps more topics or tenants later, the progress stays true. If it
// keeps fewer, rows that were passed may leave now, and the search begins again at the head.
//
// The search never passes the mark for good. A row could still appear below its position there, and a later row of the
// same key must not have been published by then. While a transaction stays open for long, the search goes on to the end
// of the shortcut, and that part of its progress is void as soon as the transaction has ended.
type Search struct {
	To      int64            // the search has passed all rows up to this number
	Short   Place            // the search has passed more rows on a shortcut
	Stuck   Place            // the limit at which the search could get no further, see progress.Shortcut; it waits for another one; zero: none
	FarSeen time.Time        // the last look far beyond it
	keys    pausedKeys       // keys of paused rows; later rows of these keys wait
	First   map[string]int64 // paused topics, and the first row of each that was seen
}

// saw records a row of a paused topic.
func (s *Search) saw(topic string, seq int64) {
	if s.First == nil {
		s.First = map[string]int64{}
	}
	if first, ok := s.First[topic]; !ok || seq < first {
		s.First[topic] = seq
	}
}

// Reach records that the search has come to the number to, and whether it is stuck because that is beyond its limit.
func (s *Search) Reach(to int64, limit Place) (stuck bool) {
	if to <= limit.To {
		s.Stuck = Place{}
		return false
	}
	s.Stuck = limit
	return true
}

// Anew returns a search that begins again at the head of the lane.
func (s *Search) Anew() Search { return Search{FarSeen: s.FarSeen} }

func (s *Search) Clone() Search {
	c := *s
	c.keys, c.First = s.keys.clone(), maps.Clone(s.First)
	return c
}

// extent is the stretch of a lane that one scan has seen.
type extent struct {
	To    int64
	More  bool // there are rows beyond it
	Whole bool // all of its rows are chosen
}

// Choose takes rows that may leave, about a batch, in equal parts from all lanes that have such rows. Otherwise a
// lane with a backlog would be served to its end before the next one. A row may leave if the filter lets it through,
// and no paused row of its key is in front of it.
//
// It goes on behind a full part, because a paused row that comes later has to be recorded too.
//
// part is the number of rows to take from each lane, see [Share]. of returns the search of a lane, which records the
// rows that stay.
func Choose(infos []lanedb.RowInfo, part int, seed maphash.Seed, of func(lane int16) *Search) ([]outboxdb.RowID, map[int16]extent) {
	var ids []outboxdb.RowID
	seen := map[int16]extent{}
	full, left := map[int16]bool{}, map[int16]bool{}
	taken := map[int16]int{}
	for _, g := range infos {
		position := of(g.Lane)
		key := maphash.String(seed, g.Key)
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
				seen[g.Lane] = extent{To: g.Seq - 1, More: true, Whole: !g.Kept && !left[g.Lane]}
				continue
			}
			taken[g.Lane]++
			ids = append(ids, g.RowID)
		} else {
			left[g.Lane] = true
		}
		seen[g.Lane] = extent{To: g.Seq, More: g.More, Whole: !g.Kept && !left[g.Lane]}
	}
	return ids, seen
}

// Share returns the number of rows to take from each lane, so that all lanes with rows make about one batch together.
// batch returns the size of a batch for a number of lanes.
func Share(infos []lanedb.RowInfo, batch func(lanes int) int) int {
	n := LanesThatGive(infos)
	return max(1, batch(n)/max(1, n))
}

// LanesThatGive returns the number of lanes that have rows which the filter lets through.
func LanesThatGive(infos []lanedb.RowInfo) int {
	lanes := map[int16]bool{}
	for _, g := range infos {
		if g.Pass {
			lanes[g.Lane] = true
		}
	}
	return len(lanes)
}

// ChooseFar takes rows far behind the rows that stay, as [choose] does, and records nothing.
func ChooseFar(infos []lanedb.RowInfo, part int, seed maphash.Seed, of func(lane int16) *Search) (ids []outboxdb.RowID) {
	taken := map[int16]int{}
	for _, g := range infos {
		behind := g.Key != "" && of(g.Lane).keys.waits(maphash.String(seed, g.Key), g.Seq)
		if !behind && taken[g.Lane] < part {
			taken[g.Lane]++
			ids = append(ids, g.RowID)
		}
	}
	return ids
}

// HeadsOf returns the paused rows of a topic that no row of their key stands before.
func (s *Search) HeadsOf(infos []lanedb.RowInfo, topic string, seed maphash.Seed) (ids []outboxdb.RowID) {
	seen := map[string]bool{}
	for _, g := range infos {
		head := g.Key == "" || !seen[g.Key] && !s.keys.waits(maphash.String(seed, g.Key), g.Seq)
		if seen[g.Key] = true; head && g.Paused && g.Topic == topic {
			ids = append(ids, g.RowID)
		}
	}
	return ids
}
