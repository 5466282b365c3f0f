package schedule

import "maps"

// mostPausedKeys is the number of ordering keys of one lane that have a place of their own while a topic is paused.
// Together with the same number of shared places they need about 2 MiB.
const mostPausedKeys = 1 << 15

// pausedKeys holds the ordering keys of paused rows, hashed with 64 bits, each with the number of its first paused
// row.
//
// The first keys have a place of their own: an event of another topic waits only behind a row of its own key. The
// memory is bounded, so all keys after [mostPausedKeys] share places. A key that shares its place with a paused key
// waits as well, until the topic is back. That costs time and never the order.
type pausedKeys struct {
	own    map[uint64]int64
	shared map[uint64]int64
}

func (k *pausedKeys) pause(key uint64, seq int64) {
	places := &k.own
	if _, known := k.own[key]; !known && len(k.own) == mostPausedKeys {
		places, key = &k.shared, key%mostPausedKeys
	}
	if *places == nil {
		*places = map[uint64]int64{}
	}
	if first, ok := (*places)[key]; !ok || seq < first {
		(*places)[key] = seq
	}
}

// waits reports whether the row with number seq has a paused row of its key, or of a key in the same shared place, in
// front of it.
func (k *pausedKeys) waits(key uint64, seq int64) bool {
	if first, ok := k.own[key]; ok {
		return first < seq
	}
	first, ok := k.shared[key%mostPausedKeys]
	return ok && first < seq
}

func (k *pausedKeys) clone() pausedKeys {
	return pausedKeys{own: maps.Clone(k.own), shared: maps.Clone(k.shared)}
}
