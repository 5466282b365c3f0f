package progress

import (
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// inFlight names the rows of a lane that were on their way when the lane's former owner died. One of them may have
// killed it. They are sent apart from all other rows. If another projector dies over them, they are sent one by one,
// so that the row that kills becomes known.
//
// The search for that row goes through three owners or more:
//
//  1. The first one dies with a normal batch. Nothing is counted, but its note says which rows were taken, see lanedb.Log.Take.
//  2. The second one sends these rows apart, together, and counts all of them before. It dies: each of them has a count of 1.
//  3. The third one sends rows with a count one by one, and counts each before. Rows that are harmless leave. It dies over the row that kills,
//     whose count is 2 then.
//  4. Its successors do the same, until the count exceeds Config.MaxCrashes. Then the row becomes a dead letter without another try.
type inFlight struct {
	lanedb.InFlight

	picked  map[int64]bool
	Cleared map[int64]bool // rows whose publication this process has survived
}

func newInFlight(s lanedb.InFlight) inFlight {
	out := inFlight{InFlight: s, picked: map[int64]bool{}, Cleared: map[int64]bool{}}
	for _, seq := range s.Picked {
		out.picked[seq] = true
	}
	return out
}

// has reports whether a fresh row was in flight and has not been cleared since.
func (s *inFlight) has(seq int64) bool {
	return (seq <= s.UpTo || s.picked[seq]) && !s.Cleared[seq]
}

// HasHeld reports whether a held row was in flight. The note of the former owner does not name held rows, so each one
// that was due at the takeover counts.
func (s *inFlight) HasHeld(h *lanedb.DueRow) bool {
	return !h.RetryAfter.After(s.HeldUntil) && !s.Cleared[h.Sequence]
}

// passed forgets the rows in turn when the first unsent row of the lane lies beyond them.
func (s *inFlight) passed(head int64) {
	if head > s.UpTo {
		s.UpTo = 0
	}
}

// mostAlone is the largest number of rows that one pass sends one by one before it turns to the other rows again.
const mostAlone = 32

// GroupsOf divides the rows that were in flight into groups that are sent one after another: a group for each row
// that is counted already, then one group for all others. Projectors rarely die because of a row, and there may be
// many such rows, so they are sent together, as fast as other rows, the first time.
func GroupsOf(rows []*outboxdb.Row) (groups [][]*outboxdb.Row) {
	var together []*outboxdb.Row
	for _, r := range rows {
		if r.Crashes == 0 {
			together = append(together, r)
		} else if len(groups) < mostAlone {
			groups = append(groups, []*outboxdb.Row{r})
		}
	}
	if len(together) > 0 {
		groups = append(groups, together)
	}
	return groups
}

// ForgetHeld records that all held rows that were due at the takeover have been tried.
func (s *inFlight) ForgetHeld() { s.HeldUntil = time.Time{} }
