package outbox

import (
	"slices"
	"strconv"
)

// Position is how far a lane has come. A row of the lane is unsent if its number is beyond Sent and not in Ahead.
//
// The owner of the lane keeps it in memory and stores it with each [Relay.Record]. What the database has is what counts: an owner that is not
// sure whether the two agree reads it again, see [Relay.Positions].
type Position struct {
	// Upto is the highest number that was published in its turn.
	Upto int64
	// Sent is a number up to which nothing is unsent, nor ever will be.
	Sent int64
	// Ahead are the numbers of published rows beyond Sent, in order.
	Ahead []int64
	// Total is how many rows were published in their turn.
	Total int64
}

// Publish returns the position after rows were published that stay where they are.
func (p Position) Publish(seqs []int64) Position {
	next := Position{Upto: p.Upto, Sent: p.Sent, Ahead: slices.Clone(p.Ahead), Total: p.Total}
	for _, seq := range seqs {
		if p.Has(seq) {
			continue
		}
		next.Upto = max(next.Upto, seq)
		next.Ahead = append(next.Ahead, seq)
		next.Total++
	}
	slices.Sort(next.Ahead)
	return next
}

// Advance returns the position when nothing up to a number is unsent, nor ever will be.
func (p Position) Advance(to int64) Position {
	if to <= p.Sent {
		return p
	}
	n, found := slices.BinarySearch(p.Ahead, to)
	if found {
		n++
	}
	return Position{Upto: p.Upto, Sent: to, Ahead: p.Ahead[n:], Total: p.Total}
}

// Has tells whether the row with this number is out, as far as the position says.
func (p Position) Has(seq int64) bool {
	if seq <= p.Sent {
		return true
	}
	_, ahead := slices.BinarySearch(p.Ahead, seq)
	return ahead
}

// ranges writes Ahead as an int8multirange.
func (p Position) ranges() string {
	if len(p.Ahead) == 0 {
		return "{}"
	}
	out := make([]byte, 0, 2+24*len(p.Ahead))
	out = append(out, '{')
	for i := 0; i < len(p.Ahead); {
		end := i + 1
		for end < len(p.Ahead) && p.Ahead[end] == p.Ahead[end-1]+1 {
			end++
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, '[')
		out = strconv.AppendInt(out, p.Ahead[i], 10)
		out = append(out, ',')
		out = strconv.AppendInt(out, p.Ahead[end-1]+1, 10)
		out = append(out, ')')
		i = end
	}
	return string(append(out, '}'))
}
