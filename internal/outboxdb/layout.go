package outboxdb

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/envelope"
	"github.com/oncebox/oncebox/internal/pgerr"
)

// hashVersion names the function LaneHash. Rows of one key must meet in one lane for as long as the table exists, so
// the function never changes; another one would have another version and a migration.
const hashVersion = 1

// LockBuckets bounds the advisory locks of one transaction: a unit over thousands of aggregates must fit into the
// server's lock table, and so must a move, which takes all of them. With PostgreSQL's own settings that holds 12,800
// locks at 100 connections, and 5,200 at 25. A lock takes its place only while it is held. With fewer buckets, more
// keys would share one, and would wait for each other without need.
const LockBuckets = 4096

// Layout has the facts that every writer must agree on. They are stored in the database.
type Layout struct {
	Lanes     int
	LockSpace int32
}

// selectLayout also asks whether this role may see what the flush looks at. PostgreSQL 18 answers NULL to
// pg_sequence_last_value where the right is missing, as it does for a sequence that was never used: the flush would take
// that for "no tenant has ever moved", and store the rows of a tenant that has moved in lanes of the wrong group.
const selectLayout = `
SELECT lanes, hash_version, lock_space, has_sequence_privilege('{schema}.outbox_moves', 'USAGE, SELECT') FROM {schema}.oncebox_settings`

// Layout returns the layout of the database. It asks once and keeps the answer.
func (h *Handle) Layout(ctx context.Context, conn Conn) (*Layout, error) {
	if l := h.layout.Load(); l != nil {
		return l, nil
	}
	var l Layout
	var version int
	var seesMoves bool
	if err := conn.QueryRow(ctx, selectLayout, nil, &l.Lanes, &version, &l.LockSpace, &seesMoves); err != nil {
		return nil, fmt.Errorf("outbox: read oncebox_settings: %w", pgerr.Explain(err))
	}
	if !seesMoves {
		return nil, errors.New("outbox: the role of this connection may not see which tenants have moved: GRANT USAGE ON SEQUENCE outbox_moves to it")
	}
	if version != hashVersion {
		return nil, fmt.Errorf("outbox: the tables use hash version %d, this build knows %d: deploy a build that knows it", version, hashVersion)
	}
	h.layout.Store(&l)
	return &l, nil
}

// LaneHash is FNV-1a with the finalizer of MurmurHash3: FNV alone leaves the low bits of similar keys alike. It must
// differ from the broker's hash of the routing key, or lanes and partitions would line up and share their skew.
func LaneHash(key string) uint64 {
	f := fnv.New64a()
	f.Write([]byte(key))
	h := f.Sum64()
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// Place returns the lane of an event, and the lock of its stored ordering key. lock is -1 if the event has no key.
func (l *Layout) Place(key, id string) (lane int16, lock int32) {
	if key == "" {
		return int16(LaneHash(id) & uint64(l.Lanes-1)), -1 //nolint:gosec // at most 32,767 lanes
	}
	h := LaneHash(key)
	return int16(h & uint64(l.Lanes-1)), int32(h >> 32 % LockBuckets) //nolint:gosec // both are bounded
}

// sortedLocks returns each lock once, in ascending order: all that take several take them in the same order, so no
// two flushes can wait for each other.
func sortedLocks(locks []int32) []int32 {
	slices.Sort(locks)
	return slices.Compact(locks)
}

// LanesOf returns the lanes of events that were flushed by this process.
func (h *Handle) LanesOf(evs []event.Envelope) LaneSet {
	l := h.layout.Load()
	if l == nil || l.Lanes%64 != 0 { // the lanes of another group are not 64 apart
		return AllLanes
	}
	var lanes LaneSet
	for i, key := range envelope.StoredKeys(evs) {
		lane, _ := l.Place(key, evs[i].ID)
		lanes |= LaneOf(lane)
	}
	return lanes
}
