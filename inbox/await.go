package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/uow"
)

// ErrGivenUp means that a consumer has made a dead letter of a message that [Inbox.Await] waits for. Its effect does not come before an
// operator replays it.
var ErrGivenUp = errors.New("inbox: the consumer has given up")

// Await waits until the consumer has handled all events of the unit of work that t belongs to: after it, the caller that made a change
// finds it in the consumer's read model. Name the topics that the consumer reads if the unit announced events on others as well; without
// topics Await waits for all events.
//
// It looks into the inbox, at first after 2 ms and later every 50 ms, until ctx ends. Always give ctx a deadline, and fall back to the read
// model as it is. The error wraps ctx's, [ErrGivenUp], or [event.ErrInvalid] if t is no token. A token from a client proves no right to
// read anything.
//
// Call it before a unit of work begins. Within a unit it asks in the unit's transaction, which stays open meanwhile and, above READ
// COMMITTED, never sees the entries.
func (i *Inbox) Await(ctx context.Context, consumer string, t uow.Token, topics ...string) error {
	events, err := t.Events(topics...)
	if err != nil {
		return fmt.Errorf("inbox: Await: %w", err)
	}
	var keys, tenants, sources []string
	for _, e := range events {
		keys = append(keys, store.MessageKey(e.Source, e.ID).String())
		tenants = append(tenants, e.TenantID)
		sources = append(sources, e.Source)
	}
	asking := ctx
	if _, within := uow.FromContext(ctx); within {
		// Cancelling a statement closes its connection, which would lose the caller's transaction. So the statement does not end with ctx.
		asking = context.WithoutCancel(ctx)
	}
	for attempt, done := 1, 0; len(events) > 0; attempt++ {
		n, dead, err := i.table.Entries.Settled(asking, i.store.DB(ctx), consumer, keys, tenants, sources)
		switch {
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("inbox: Await: look for %d messages of %s: %w", len(events), consumer, pgerr.Explain(err))
		case dead > 0:
			return fmt.Errorf("%w: Await: %d of %d events are dead letters of %s: see Inbox.Dead and Replay", ErrGivenUp, dead, len(events), consumer)
		case n == len(events):
			return nil
		case err == nil:
			done = n
		}
		if err := backoff.Wait(ctx, backoff.Exponential(attempt, 2*time.Millisecond, 50*time.Millisecond)); err != nil {
			return fmt.Errorf("inbox: Await: %s has handled %d of %d events: %w", consumer, done, len(events), err)
		}
	}
	return nil
}
