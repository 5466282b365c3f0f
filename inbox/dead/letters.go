// Package dead is for the messages that a consumer gave up: it lists them, has them handled after all, or deletes them.
//
//	letters, err := box.Dead().List(ctx, operator.DeadFilter{Consumer: "billing"}, nil, 0)
//	err = box.Dead().Replay(ctx, letters[0].Key, operator.By{Actor: "ann"})
//
// A process needs no handlers to use it. Each change is entered in the audit, see inbox.Inbox.Audit.
//
// Read first: letters.go:Letters.Replay, then box.go and package internal/deadletter.
package dead

import (
	"context"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/deadletter"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// Letter is a message that a consumer gave up.
type Letter struct {
	Key operator.MessageRef
	// Envelope is the message as it came. Only identifiers that cannot be stored were made readable.
	Envelope event.Envelope
	// Attempts counts its tries, as far as they are known.
	Attempts int
	// Error is the last error, at most 2 KiB of it, in valid UTF-8 and without NUL; beyond that it may be any text.
	Error string
	// Fingerprint is that of the error, see package operator/failures.
	Fingerprint string
	// FailedBy is the process whose try failed last, as the list of processes names it, and its version if that is known. "": no process tried it.
	FailedBy string
	// DiedAt is when it was given up.
	DiedAt time.Time
	// Holds says that the later messages of its key wait until it is replayed or discarded.
	Holds bool
}

// Letters are the dead letters of an inbox. It is safe for concurrent use.
type Letters struct{ box *deadletter.Box[Letter] }

// named names the dead letter of a message.
func named(ref operator.MessageRef) deadletter.One {
	one := deadletter.One{Name: ref.MessageKey + " of consumer " + ref.Consumer, Where: &pgsql.Where{}}
	args, err := store.RefArgs(ref)
	if one.Invalid = err; err == nil {
		one.Where.Add("d.message_key = %s::uuid AND d.consumer = %s::text AND d.tenant_id = %s::text AND d.source = %s::text", args...)
	}
	return one
}

// List lists the dead letters that the filter selects, oldest first, without their payloads. A page has at most limit of
// them (0: 100) and begins after the last one of the page before (nil: from the start). Only its DiedAt and Key count.
func (l *Letters) List(ctx context.Context, filter operator.DeadFilter, after *Letter, limit int) ([]Letter, error) {
	return l.box.List(ctx, filter, after, limit)
}

// Show returns one dead letter with its payload, or [operator.ErrNotDead].
func (l *Letters) Show(ctx context.Context, key operator.MessageRef) (Letter, error) {
	return l.box.Show(ctx, named(key))
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

// Replay parks a dead letter again, and the processes of its consumer handle it in their inbox.Inbox.RunParked; the caller needs no handler.
// The letter returns to its place in its key, before the messages that wait behind it, and its attempts start at zero. It returns
// [operator.ErrNotDead] if there is none with this key.
//
// If the key flows, because the letter has no order or its consumer goes on after dead letters, the letter is handled as soon as a process
// looks for parked messages, and from then on later messages of the key wait for it. A letter whose key another dead letter holds waits
// until that one is decided. A letter whose message came again after its entry had expired, and was handled then, is not handled twice.
func (l *Letters) Replay(ctx context.Context, key operator.MessageRef, by operator.By) error {
	return l.box.Replay(ctx, named(key), by)
}

// ReplayEdited is [Letters.Replay] with a new payload, in one transaction. The rest of the message stays, and other consumers keep their
// copies. The former payload is lost. by must give a reason. An empty payload is an error, and so is a payload that is larger than
// inbox.Config.MaxPayload.
func (l *Letters) ReplayEdited(ctx context.Context, key operator.MessageRef, payload []byte, by operator.By) error {
	return l.box.ReplayEdited(ctx, named(key), payload, by)
}

// Discard deletes a dead letter for good; the messages that wait behind it are handled without it. by must give a reason. It returns
// [operator.ErrNotDead] if there is none with this key.
func (l *Letters) Discard(ctx context.Context, key operator.MessageRef, by operator.By) error {
	return l.box.Discard(ctx, named(key), by)
}

// ReplayAll replays the dead letters that the filter selects and that are dead when it begins, per key in their order. It returns how many
// it moved, also together with an error: each batch is a transaction of its own, and earlier batches stay committed. See [Letters.Replay].
func (l *Letters) ReplayAll(ctx context.Context, filter operator.DeadFilter, by operator.By, bulk *operator.Bulk) (int64, error) {
	return l.box.ReplayAll(ctx, filter, by, bulk)
}

// DiscardAll discards the dead letters that the filter selects and that are dead when it begins. by must give a reason. It returns how many
// it deleted, also together with an error, as [Letters.ReplayAll] does.
func (l *Letters) DiscardAll(ctx context.Context, filter operator.DeadFilter, by operator.By, bulk *operator.Bulk) (int64, error) {
	return l.box.DiscardAll(ctx, filter, by, bulk)
}

// Expire discards the letters that are older than retention; 0 and less keep them for ever. It is for inbox.Inbox.Clean.
func (l *Letters) Expire(ctx context.Context, retention time.Duration) error {
	return l.box.Expire(ctx, retention)
}
