package main

import (
	"math"
	"slices"
	"sync"
	"time"
)

const (
	// latencyWarmUp is what is not measured at the start: producers are opened, statements prepared, and Pulsar waits a second
	// before it gives a partition to its first consumer.
	latencyWarmUp = 3 * time.Second
	// latencyAccounts is over how many accounts the events are spread, a multiple of latencyWriters: the events of an
	// account are those of one writer.
	latencyAccounts = 96
	latencyWriters  = 32
	// storedVersion is what storeAccounts makes of an account; the first event is the one after.
	storedVersion = 1
)

// stamp is when something happened to an event, in nanoseconds of the clock that all processes of a machine share.
type stamp struct {
	ID      string
	Version int64
	At      int64
}

// record is what a process saw, in its order. It is safe for concurrent use while it is written.
type record struct {
	Committed, Handed, Arrived []stamp

	mu sync.Mutex
}

func (r *record) note(to *[]stamp, id string, version int64) (n int) {
	at := time.Now().UnixNano()
	r.mu.Lock()
	defer r.mu.Unlock()
	*to = append(*to, stamp{id, version, at})
	return len(*to)
}

// verify checks that every event has arrived once, and those of each account in order.
func (r *record) verify(versions int) error {
	ids := make([]string, latencyAccounts)
	for i := range ids {
		ids[i] = accountID(i)
	}
	t := newTally(ids, versions)
	for _, s := range r.Arrived {
		t.add(s.ID, s.Version-storedVersion)
	}
	return t.verdict()
}

// delays returns the times from the commits to the stamps in milliseconds, sorted, without those of the warm-up.
func (r *record) delays(stamps []stamp) sample {
	type key struct {
		id      string
		version int64
	}
	committed := make(map[key]int64, len(r.Committed))
	first := int64(math.MaxInt64)
	for _, s := range r.Committed {
		committed[key{s.ID, s.Version}] = s.At
		first = min(first, s.At)
	}
	var out sample
	for _, s := range stamps {
		at := committed[key{s.ID, s.Version}]
		if at-first >= int64(latencyWarmUp) {
			// It can be published before the committing call has returned.
			out = append(out, max(0, float64(s.At-at)/1e6))
		}
	}
	slices.Sort(out)
	return out
}

// quantile returns the smallest value that a share q of the sorted sample does not exceed.
func quantile(sorted sample, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}
