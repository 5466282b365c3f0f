package outboxdb

import "strconv"

// LaneSet is a set of lanes in 64 bits. Lanes whose numbers are 64 apart share a bit, as do lanes of the same number
// in all groups. So a set may have more lanes than were added, and never fewer.
type LaneSet uint64

// AllLanes has every lane.
const AllLanes = ^LaneSet(0)

// Has reports whether the lane is in the set.
func (s LaneSet) Has(lane int16) bool { return s&LaneOf(lane) != 0 }

// LaneOf returns the set of one lane.
func LaneOf(lane int16) LaneSet { return 1 << (uint16(lane) % 64) } //nolint:gosec // no lane is negative

// String returns the set in the form of a NOTIFY.
func (s LaneSet) String() string { return strconv.FormatUint(uint64(s), 16) }

// parseLaneSet reads what String wrote, and takes anything else for all lanes.
func parseLaneSet(text string) LaneSet {
	n, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return AllLanes
	}
	return LaneSet(n)
}
