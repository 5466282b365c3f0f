// Package dead is for the events of an outbox that were given up: it lists them, publishes them after all, or deletes them.
//
//	letters, err := store.Dead().List(ctx, operator.DeadFilter{}, nil, 0)
//	err = store.Dead().Replay(ctx, letters[0].ID, operator.By{Actor: "ann"})
//
// Each change is entered in the audit, see outbox.Store.Audit.
//
// Read first: letters.go:Letters.Replay, then sql.go and package internal/deadletter.
package dead

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/internal/deadletter"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// Letter is an event that was given up.
type Letter = outboxdb.DeadLetter

// Letters are the dead letters of an outbox. It is safe for concurrent use.
type Letters struct{ box *deadletter.Box[Letter] }

// Option narrows which dead letter is meant, for [Letters.Show], [Letters.Replay] and [Letters.Discard].
type Option func(*pgsql.Where)

// OfTenant means the dead letter with the id only if it belongs to this tenant, for operators who may not touch the letters of others. They
// get [operator.ErrNotDead], as for an id that does not exist. An empty tenant has no dead letters.
func OfTenant(id string) Option {
	return func(w *pgsql.Where) { w.Add("d.tenant_id = %s::text", id) }
}

// withID names the dead letter with an id.
func withID(id string, opts []Option) deadletter.One {
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

// List lists the dead letters that the filter selects, oldest first, without their payloads. A page has at most limit of
// them (0: 100) and begins after the last one of the page before (nil: from the start). Only its DiedAt and Sequence count.
func (l *Letters) List(ctx context.Context, filter operator.DeadFilter, after *Letter, limit int) ([]Letter, error) {
	return l.box.List(ctx, filter, after, limit)
}

// Show returns the dead letter with this id and its payload, [operator.ErrNotDead] if there is none, and
// [operator.ErrSeveralDead] if there are more.
func (l *Letters) Show(ctx context.Context, id string, opts ...Option) (Letter, error) {
	return l.box.Show(ctx, withID(id, opts))
}

// Behind lists the events that wait behind the dead letter with this id, in their order and without their payloads, at most limit of them. It is for a
// letter that holds its key: other letters have none behind them. Several letters with the id are an error.
func (l *Letters) Behind(ctx context.Context, id string, limit int, opts ...Option) ([]outboxdb.Row, error) {
	one := withID(id, opts)
	if one.Invalid != nil {
		return nil, one.Invalid
	}
	statement := fmt.Sprintf(heldBehind, one.Where, one.Where.Arg(limit))
	list, err := pgsql.Collect(l.box.Run.Query(ctx, l.box.DB(ctx), statement, one.Where.Args...), func(scan pgsql.Scan, r *outboxdb.Row) error {
		return outboxdb.ScanRow(scan, r)
	})
	if err != nil {
		return nil, fmt.Errorf("outbox: list what waits behind %s: %w", id, err)
	}
	return list, nil
}

// Count counts the dead letters that the filter selects.
func (l *Letters) Count(ctx context.Context, filter operator.DeadFilter) (int64, error) {
	return l.box.Count(ctx, filter)
}

// CountTo is [Letters.Count] that stops at most, so it reads no more rows than needed.
func (l *Letters) CountTo(ctx context.Context, filter operator.DeadFilter, most int) (int64, error) {
	return l.box.CountTo(ctx, filter, most)
}

// Errors lists why the latest dead letters were given up, the newest first: at most limit of them (0: 100). It reads no more
// rows than that, however many dead letters there are.
func (l *Letters) Errors(ctx context.Context, limit int) ([]operator.DeadError, error) {
	return l.box.Errors(ctx, limit)
}

// Replay publishes a dead letter after all. It keeps id and sequence and gets all its attempts back; it
// leaves before whatever waits behind it under its key, and consumers that have handled it already see a
// duplicate. It returns [operator.ErrNotDead] if there is none with this id, and [operator.ErrSeveralDead],
// having done nothing, if there are more.
//
// An expired event becomes a dead letter again. If another dead letter blocks the key, the replayed event waits for it.
func (l *Letters) Replay(ctx context.Context, id string, by operator.By, opts ...Option) error {
	return l.box.Replay(ctx, withID(id, opts), by)
}

// ReplayEdited is [Letters.Replay] with a new payload, in one transaction. The id and everything else of the event stay, and the former payload is
// lost. Use it for events that no consumer has received: a consumer that has received the event, because a receipt was lost, takes the new payload
// for a copy and ignores it. by must give a reason. A payload that is empty, or larger than Config.MaxPayload, is an error.
func (l *Letters) ReplayEdited(ctx context.Context, id string, payload []byte, by operator.By, opts ...Option) error {
	return l.box.ReplayEdited(ctx, withID(id, opts), payload, by)
}

// Discard deletes a dead letter for good. The events that wait behind it are published. by must give a reason. It returns
// [operator.ErrNotDead] if no dead letter has this id, and [operator.ErrSeveralDead] if several have it: then it deletes nothing.
func (l *Letters) Discard(ctx context.Context, id string, by operator.By, opts ...Option) error {
	return l.box.Discard(ctx, withID(id, opts), by)
}

// ReplayAll replays the dead letters that the filter selects and that are dead when it begins, per key in the order of
// their sequence. It returns how many it moved, also beside an error: each batch is a transaction of its own, and the
// batches before stay. See [Letters.Replay].
func (l *Letters) ReplayAll(ctx context.Context, filter operator.DeadFilter, by operator.By, bulk *operator.Bulk) (int64, error) {
	return l.box.ReplayAll(ctx, filter, by, bulk)
}

// DiscardAll discards the dead letters that the filter selects and that are dead when it begins. by must give a reason.
// It returns how many it deleted, also beside an error, as [Letters.ReplayAll] does.
func (l *Letters) DiscardAll(ctx context.Context, filter operator.DeadFilter, by operator.By, bulk *operator.Bulk) (int64, error) {
	return l.box.DiscardAll(ctx, filter, by, bulk)
}

// Expire discards the letters that are older than retention; 0 and less keep them for ever. It is for outbox.Store.Clean.
func (l *Letters) Expire(ctx context.Context, retention time.Duration) error {
	return l.box.Expire(ctx, retention)
}
