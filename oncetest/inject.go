package oncetest

import (
	"slices"
	"strconv"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/envelope"
)

// PublishFrom publishes an event of another service, whose name is source: the broker has it at once, and consumers handle it in the next
// [Kit.Drain]. opts give the event what the other service gives it: [event.WithTenantID], and the order by [event.WithAggregate].
//
//	kit.PublishFrom("orders", "order", OrderPlaced{"o-1"}, event.WithAggregate("order", "o-1", 1))
//
// The event is none of the service under test, so [RequireEvent] does not find it.
func (k *Kit) PublishFrom(source, topic string, e event.Event, opts ...event.AddOption) {
	k.t.Helper()
	maker := envelope.Maker{Registry: k.App.Registry, Source: source, DefaultTenantID: k.App.Outbox.Handle().DefaultTenantID}
	env, err := maker.Payload(k.t.Context(), k.App.UoW.Topic(topic), e, opts)
	if err != nil {
		k.t.Fatalf("oncetest: PublishFrom: %v", err)
	}
	if err := k.broker.Publish(k.t.Context(), []event.Envelope{env}); err != nil {
		k.t.Fatalf("oncetest: PublishFrom: %v", err)
	}
}

// FailNextPublish makes the next calls of Publish fail: the first call with the first error, and so on. All messages of
// a call fail with its error. [github.com/oncebox/oncebox/messaging] explains the errors: a plain error is a refusal
// that is tried again after a pause, messaging.Permanent makes a dead event, and with messaging.ErrBrokerDown the event
// is tried again by the same Drain. The test fails at its end if an error was not used.
func (k *Kit) FailNextPublish(errs ...error) {
	k.broker.mu.Lock()
	defer k.broker.mu.Unlock()
	k.broker.failures = append(k.broker.failures, errs...)
}

// Redeliver makes the broker deliver published events again, to all consumers of their topics: the events with the ids, or all events if no
// id is given. They are handled in the next [Kit.Drain]. A service without a broker has nothing that delivers again: see [Kit.CrashAt].
func (k *Kit) Redeliver(ids ...string) {
	k.t.Helper()
	var again int
	missing := slices.Clone(ids)
	for _, s := range k.App.Inbox.Subscriptions() {
		for _, env := range k.broker.Messages(s.Topic) {
			if len(ids) > 0 && !slices.Contains(ids, env.ID) {
				continue
			}
			if err := k.broker.Redeliver(s.Name, s.Topic, env.ID); err != nil {
				k.t.Fatalf("oncetest: Redeliver: %v: call Drain before", err)
			}
			again++
			missing = slices.DeleteFunc(missing, func(id string) bool { return id == env.ID })
		}
	}
	switch {
	case len(missing) > 0:
		k.t.Fatalf("oncetest: Redeliver: no consumer has a topic with the events %q: call Drain before, so that they are published", missing)
	case again == 0:
		k.t.Fatalf("oncetest: Redeliver: nothing was published to the topic of a consumer: call Drain before. " +
			"A service without a broker has nothing that delivers again: use CrashAt(oncetest.AfterCommit)")
	}
}

// shifts moves the stored times that decide when something happens. Times at which something has happened stay, because
// the inbox compares when a message was parked with when it was handled.
const shifts = `
UPDATE outbox SET not_before = not_before - ?0::interval, expires_at = expires_at - ?0::interval
WHERE not_before IS NOT NULL OR expires_at IS NOT NULL;
UPDATE outbox_held SET not_before = not_before - ?0::interval, expires_at = expires_at - ?0::interval, retry_after = retry_after - ?0::interval,
	cause_since = cause_since - ?0::interval;
UPDATE outbox_lane SET lease_until = lease_until - ?0::interval;
UPDATE outbox_projector SET seen_until = seen_until - ?0::interval;
UPDATE outbox_dedup SET created_at = created_at - ?0::interval;
UPDATE outbox_dead SET died_at = died_at - ?0::interval;
UPDATE inbox_key SET due_at = due_at - ?0::interval, since = since - ?0::interval;
UPDATE inbox_parked SET failing_since = failing_since - ?0::interval, unknown_since = unknown_since - ?0::interval, cause_since = cause_since - ?0::interval;
UPDATE inbox_attempt SET tried_at = tried_at - ?0::interval;
UPDATE oncebox_lease SET lease_until = lease_until - ?0::interval WHERE task = 'inbox.message';
UPDATE inbox_dead SET died_at = died_at - ?0::interval;
UPDATE idempotency_keys SET expires_at = expires_at - ?0::interval, locked_until = locked_until - ?0::interval`

// Advance moves the time on by d for all that waits: delayed events, expiry, retries, limits of retries, leases and idempotency keys. The
// next [Kit.Drain] finds what has become due. PostgreSQL's clock decides what is due, so Advance sets the stored times back by d, in one
// transaction. The times of the service's own tables stay as they are, and so do the times at which events occurred and were sent.
func (k *Kit) Advance(d time.Duration) {
	k.t.Helper()
	if d <= 0 {
		k.t.Fatalf("oncetest: Advance(%s): time goes forward only", d)
	}
	// PostgreSQL runs several statements that are sent as one text in one transaction.
	_, err := k.DB.NewRaw(shifts, strconv.FormatInt(d.Microseconds(), 10)+" microseconds").Exec(k.t.Context())
	if err != nil {
		k.t.Fatalf("oncetest: Advance(%s): %v", d, err)
	}
}
