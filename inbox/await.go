package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/uow"
)

// ErrGivenUp means that a consumer has made a dead letter of a message that [Inbox.Await] waits for. Its effect does not come before an
// operator replays it.
var ErrGivenUp = errors.New("inbox: the consumer has given up")

// handled counts the messages that the consumer has handled (entered, and not parked), and the messages that are its dead letters.
const handled = `
SELECT count(i.message_key) FILTER (WHERE p.message_key IS NULL), count(d.message_key)
FROM unnest($1::uuid[], $2::text[], $3::text[]) u(key, tenant, source)
CROSS JOIN (SELECT coalesce((SELECT consumer FROM {schema}.inbox_read_model WHERE name = $4::text), $4::text) AS consumer) c
LEFT JOIN {schema}.inbox i ON i.message_key = u.key AND i.consumer = c.consumer AND i.tenant_id = u.tenant AND i.source = u.source
LEFT JOIN {schema}.inbox_parked p ON p.message_key = u.key AND p.consumer = c.consumer AND p.tenant_id = u.tenant AND p.source = u.source
LEFT JOIN {schema}.inbox_dead d ON d.message_key = u.key AND d.consumer = c.consumer AND d.tenant_id = u.tenant AND d.source = u.source`

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
	var done, dead int
	for attempt := 1; len(events) > 0; attempt++ {
		err := i.store.SQL.QueryRow(asking, i.store.DB(ctx), handled, []any{keys, tenants, sources, consumer}, &done, &dead)
		switch {
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("inbox: Await: look for %d messages of %s: %w", len(events), consumer, pgsql.Explain(err))
		case dead > 0:
			return fmt.Errorf("%w: Await: %d of %d events are dead letters of %s: see Inbox.Dead and Replay", ErrGivenUp, dead, len(events), consumer)
		case done == len(events):
			return nil
		}
		if err := backoff.Wait(ctx, backoff.Exponential(attempt, 2*time.Millisecond, 50*time.Millisecond)); err != nil {
			return fmt.Errorf("inbox: Await: %s has handled %d of %d events: %w", consumer, done, len(events), err)
		}
	}
	return nil
}
