package outbox

import (
	"context"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/internal/deadletter"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// DeadLetter is a row that was given up.
type DeadLetter = outboxdb.DeadLetter

// DeadOption narrows which dead letter is meant, for [Store.DeadLetter], [Store.Replay] and [Store.Discard].
type DeadOption func(*pgsql.Where)

// OfTenant means the dead letter with the id only if it belongs to this tenant, for operators who may not touch the letters of others. They
// get [operator.ErrNotDead], as for an id that does not exist. An empty tenant has no dead letters.
func OfTenant(id string) DeadOption {
	return func(w *pgsql.Where) { w.Add("d.tenant_id = %s::text", id) }
}

// deadWithID names the dead letter with an id.
func deadWithID(id string, opts []DeadOption) deadletter.One {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return deadletter.One{Name: id, Invalid: operator.ErrNotDead}
	}
	w := &pgsql.Where{}
	w.Add("d.id = %s::uuid", parsed.String())
	for _, opt := range opts {
		opt(w)
	}
	return deadletter.One{Name: id, Where: w}
}

// Dead lists the dead letters that the filter selects, oldest first, without their payloads. A page has at most limit of
// them (0: 100) and begins after the last one of the page before (nil: from the start). Only its DiedAt and Sequence count.
func (s *Store) Dead(ctx context.Context, filter operator.DeadFilter, after *DeadLetter, limit int) ([]DeadLetter, error) {
	return s.dead.List(ctx, filter, after, limit)
}

// DeadLetter returns the dead letter with this id and its payload, [operator.ErrNotDead] if there is none, and
// [operator.ErrSeveralDead] if there are more.
func (s *Store) DeadLetter(ctx context.Context, id string, opts ...DeadOption) (DeadLetter, error) {
	return s.dead.Show(ctx, s.db, deadWithID(id, opts))
}

// CountDead counts the dead letters that the filter selects.
func (s *Store) CountDead(ctx context.Context, filter operator.DeadFilter) (int64, error) {
	return s.dead.Count(ctx, filter)
}

// DeadErrors lists why the latest dead letters were given up, the newest first: at most limit of them (0: 100). It reads no more
// rows than that, however many dead letters there are.
func (s *Store) DeadErrors(ctx context.Context, limit int) ([]operator.DeadError, error) {
	return s.dead.Errors(ctx, limit)
}

// Replay publishes a dead letter after all. It keeps id and sequence and gets all its attempts back; it leaves before
// whatever waits behind it under its key, and consumers that have handled it already see a duplicate. It returns
// [operator.ErrNotDead] if there is none with this id, and [operator.ErrSeveralDead], having done nothing, if there are more.
//
// What has expired dies again. What is replayed under a key that another dead letter blocks waits for that one.
func (s *Store) Replay(ctx context.Context, id string, by operator.By, opts ...DeadOption) error {
	return s.dead.Replay(ctx, deadWithID(id, opts), by)
}

// ReplayEdited is [Store.Replay] with another payload in the place of the stored one, in one transaction; all else of the
// event stays, its id too. The former payload is gone. It is for an event that nobody has received: a consumer that received it under this id
// already, because a receipt was lost, keeps what it has. by must give a reason. An empty payload is an error, and so is a payload
// that is larger than Config.MaxPayload.
func (s *Store) ReplayEdited(ctx context.Context, id string, payload []byte, by operator.By, opts ...DeadOption) error {
	return s.dead.ReplayEdited(ctx, deadWithID(id, opts), payload, by)
}

// Discard deletes a dead letter for good; what waits behind it is published. by must give a reason. It returns
// [operator.ErrNotDead] if there is none with this id, and [operator.ErrSeveralDead], having done nothing, if there are more.
func (s *Store) Discard(ctx context.Context, id string, by operator.By, opts ...DeadOption) error {
	return s.dead.Discard(ctx, deadWithID(id, opts), by)
}

// ReplayAll replays the dead letters that the filter selects and that are dead when it begins, per key in the order of
// their sequence. It returns how many it moved, also beside an error: each batch is a transaction of its own, and the
// batches before stay. See [Store.Replay].
func (s *Store) ReplayAll(ctx context.Context, filter operator.DeadFilter, by operator.By, bulk *operator.Bulk) (int64, error) {
	return s.dead.ReplayAll(ctx, filter, by, bulk)
}

// DiscardAll discards the dead letters that the filter selects and that are dead when it begins. by must give a reason.
// It returns how many it deleted, also beside an error, as [Store.ReplayAll] does.
func (s *Store) DiscardAll(ctx context.Context, filter operator.DeadFilter, by operator.By, bulk *operator.Bulk) (int64, error) {
	return s.dead.DiscardAll(ctx, filter, by, bulk)
}
