package projector

import "maps"

// mostPausedKeys is how many ordering keys of one lane are told apart while a topic is paused. With as many shared places
// behind them that is about 2 MiB.
const mostPausedKeys = 1 << 15

// pausedKeys are the ordering keys of paused rows, hashed with 64 bits, each with its first such row.
//
// The first keys have a place of their own: an event of another topic waits only behind a row of its own key. What is
// remembered is bounded, so keys beyond [mostPausedKeys] share places. Then a key that shares one with a paused key waits as
// if it was that key, until the topic is back.
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

// waits says whether the row seq has a paused row of its key in front of it.
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
