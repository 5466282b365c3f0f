package outbox

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/envelope"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// hashVersion names the function laneHash. Rows of one key must meet in one lane for as long as the table exists, so
// the function never changes; another one would have another version and a migration.
const hashVersion = 1

// lockBuckets bounds the advisory locks of one transaction: a unit over thousands of aggregates must fit into the server's lock table, and so must
// a move, which takes all of them. With PostgreSQL's own settings that holds 12,800 locks at 100 connections, and 5,200 at 25. A lock takes
// its place only while it is held. The fewer there are, the more keys wait for one that they have nothing to do with.
const lockBuckets = 4096

// layout is what the database says every writer must agree on.
type layout struct {
	lanes     int
	lockSpace int32
}

// selectLayout also asks whether this role may see what the flush looks at. PostgreSQL 18 answers NULL to
// pg_sequence_last_value where the right is missing, as it does for a sequence that was never used: the flush would take
// that for "no tenant has ever moved", and store the rows of a tenant that has moved in lanes of the wrong group.
const selectLayout = `
SELECT lanes, hash_version, lock_space, has_sequence_privilege('{schema}.outbox_moves', 'USAGE, SELECT') FROM {schema}.outbox_layout`

func (s *Store) loadLayout(ctx context.Context, h handle) (*layout, error) {
	if l := s.layout.Load(); l != nil {
		return l, nil
	}
	var l layout
	var version int
	var seesMoves bool
	if err := h.queryRow(ctx, selectLayout, nil, &l.lanes, &version, &l.lockSpace, &seesMoves); err != nil {
		return nil, fmt.Errorf("outbox: read outbox_layout: %w", pgsql.Explain(err))
	}
	if !seesMoves {
		return nil, errors.New("outbox: the role of this connection may not see which tenants have moved: GRANT USAGE ON SEQUENCE outbox_moves to it")
	}
	if version != hashVersion {
		return nil, fmt.Errorf("outbox: the tables use hash version %d, this build knows %d: deploy a build that knows it", version, hashVersion)
	}
	s.layout.Store(&l)
	return &l, nil
}

// laneHash is FNV-1a with the finalizer of MurmurHash3: FNV alone leaves the low bits of similar keys alike. It must
// differ from the broker's hash of the routing key, or lanes and partitions would line up and share their skew.
func laneHash(key string) uint64 {
	f := fnv.New64a()
	f.Write([]byte(key))
	h := f.Sum64()
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// place returns the lane of the envelope, and the lock of its ordering key, -1 if it is unordered.
func (l *layout) place(e *event.Envelope) (lane int16, lock int32) {
	key := envelope.StoredKey(e)
	if key == "" {
		return int16(laneHash(e.ID) & uint64(l.lanes-1)), -1 //nolint:gosec // at most 32,767 lanes
	}
	h := laneHash(key)
	return int16(h & uint64(l.lanes-1)), int32(h >> 32 % lockBuckets) //nolint:gosec // both are bounded
}

// sortedLocks returns each lock once, in ascending order: all that take several take them in the same order, so no
// two flushes can wait for each other.
func sortedLocks(locks []int32) []int32 {
	slices.Sort(locks)
	return slices.Compact(locks)
}
