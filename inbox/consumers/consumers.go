package consumers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/internal/pauses"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

var (
	// ErrUnknown means that no consumer of this name has run on this database. Nothing was changed.
	ErrUnknown = errors.New("no consumer of this name has run on this database")
	// ErrPaused means that the consumer is paused already. Nothing was changed.
	ErrPaused = errors.New("the consumer is paused already")
	// ErrNotPaused means that the consumer is not paused. Nothing was changed.
	ErrNotPaused = errors.New("the consumer is not paused")
	// ErrRuns means that a process runs the consumer, so it cannot be forgotten. Nothing was changed.
	ErrRuns = errors.New("a process runs the consumer: stop it first")
)

const (
	// pauseConsumer replaces a pause that has ended by itself. It counts the consumers of that name and the new pauses.
	pauseConsumer = `
WITH known AS (
	SELECT $1::text AS consumer
	WHERE EXISTS (SELECT FROM {schema}.inbox_consumer c WHERE c.consumer = $1::text OR ` + store.FamilyOfConsumer + ` = $1::text)
		OR EXISTS (SELECT FROM {schema}.inbox_process p WHERE p.consumer = $1::text)
		OR EXISTS (SELECT FROM {schema}.inbox_topic t WHERE t.consumer = $1::text)),
changed AS (
	INSERT INTO {schema}.inbox_pause AS p (consumer, paused_at, paused_by, reason, ends_at)
	SELECT consumer, clock_timestamp(), $2::text, $3::text, CASE WHEN $5::interval > '0' THEN clock_timestamp() + $5::interval END FROM known
	ON CONFLICT (consumer) DO UPDATE
	SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, reason = excluded.reason, ends_at = excluded.ends_at
	WHERE p.ends_at <= clock_timestamp() RETURNING consumer),
noted AS (
	INSERT INTO {schema}.oncebox_audit (part, actor, action, tenant_id, consumer, reason)
	SELECT 'inbox', $2::text, $4::text, '', consumer, CASE WHEN $5::interval > '0' THEN 'for ' || $5::interval || ': ' ELSE '' END || $3::text FROM changed)
SELECT (SELECT count(*) FROM known), (SELECT count(*) FROM changed)`

	// resumeConsumer leaves a pause alone that has ended by itself. The row stays: it says since when the consumer goes on. The next pause replaces it.
	resumeConsumer = `
WITH changed AS (
	UPDATE {schema}.inbox_pause SET ends_at = clock_timestamp()
	WHERE consumer = $1::text AND (ends_at IS NULL OR ends_at > clock_timestamp()) RETURNING consumer),
noted AS (
	INSERT INTO {schema}.oncebox_audit (part, actor, action, tenant_id, consumer, reason)
	SELECT 'inbox', $2::text, $4::text, '', consumer, $3::text FROM changed)
SELECT count(*) FROM changed`

	// forgetConsumer asks again whether a process runs the consumer: it may have begun since the caller has looked. Its last row, in
	// inbox_consumer, belongs to one generation of a read model; the others belong to the read model, which may have other generations.
	forgetConsumer = `
WITH gone AS (
	SELECT $1::text AS consumer
	WHERE NOT EXISTS (SELECT FROM {schema}.inbox_process p WHERE p.consumer = $1::text AND p.seen_until >= clock_timestamp())),
unseen AS (DELETE FROM {schema}.inbox_process p USING gone WHERE p.consumer = gone.consumer),
unsubscribed AS (DELETE FROM {schema}.inbox_topic t USING gone WHERE t.consumer = gone.consumer),
resumed AS (DELETE FROM {schema}.inbox_pause p USING gone WHERE p.consumer = gone.consumer),
removed AS (DELETE FROM {schema}.inbox_consumer c USING gone WHERE c.consumer = gone.consumer),
noted AS (
	INSERT INTO {schema}.oncebox_audit (part, actor, action, tenant_id, consumer, reason)
	SELECT 'inbox', $2::text, $4::text, '', consumer, $3::text FROM gone)
SELECT count(*) FROM gone`
)

// Pause is a consumer that an operator has paused.
type Pause = pauses.Pause

// Consumers are the consumers of a database, for operators. It is safe for concurrent use.
type Consumers struct {
	h     *store.Handle
	state *state.Reader
}

// New is for package inbox: see inbox.Inbox.Consumers.
func New(h *store.Handle, r *state.Reader) *Consumers { return &Consumers{h, r} }

// Pause stops the handling of a consumer's messages in all processes, until [Consumers.Resume], or for a time if limit is above 0: the package
// documentation says what that means. A process notices it within about a second. The clock of the database decides when the limit is over.
// by must give a reason, which status, the console and the audit show. For a read model give its own name, without a generation.
//
// It returns [ErrPaused] if the consumer is paused already, and [ErrUnknown] if there is no such consumer.
func (c *Consumers) Pause(ctx context.Context, name string, limit time.Duration, by operator.By) error {
	what := fmt.Sprintf("%s consumer %s", operator.Pause, name)
	bad := []error{validate(name), by.Validate(operator.Pause)}
	if limit < 0 {
		bad = append(bad, fmt.Errorf("the limit %s is below 0: give a duration, or 0 for a pause without an end", limit))
	}
	if err := errors.Join(bad...); err != nil {
		return store.Wrap(what, err)
	}
	var known, changed int
	args := []any{name, by.Actor, pgsql.CleanText(by.Reason), string(operator.Pause), limit}
	err := c.h.AdHoc().QueryRow(ctx, c.h.DB(ctx), pauseConsumer, args, &known, &changed)
	switch {
	case err == nil && known == 0:
		err = ErrUnknown
	case err == nil && changed == 0:
		err = ErrPaused
	}
	return store.Wrap(what, err)
}

// Paused lists the consumers that are paused, by their names. A pause that has ended by itself is not listed.
func (c *Consumers) Paused(ctx context.Context) ([]Pause, error) { return pauses.Read(ctx, c.h) }

// Resume ends a pause: all processes go on with the messages that wait, those of each key in their order. It returns [ErrNotPaused] if the
// consumer is not paused.
func (c *Consumers) Resume(ctx context.Context, name string, by operator.By) error {
	what := fmt.Sprintf("%s consumer %s", operator.Resume, name)
	if err := errors.Join(validate(name), by.Validate(operator.Resume)); err != nil {
		return store.Wrap(what, err)
	}
	var changed int
	args := []any{name, by.Actor, pgsql.CleanText(by.Reason), string(operator.Resume)}
	err := c.h.AdHoc().QueryRow(ctx, c.h.DB(ctx), resumeConsumer, args, &changed)
	if err == nil && changed == 0 {
		err = ErrNotPaused
	}
	return store.Wrap(what, err)
}

// Forget declares that a consumer will never run again. For other consumers the retention counts from their last run, so that nothing
// happens twice when a consumer comes back after a long time; the entries of a forgotten consumer are removed by their age alone. Forget
// also ends its subscriptions, so that without a broker no more messages are stored for it, and its pause. Another service may use the name
// from then on. Its parked messages and dead letters stay, and so does its subscription at the broker.
//
// It returns [ErrRuns] while a process runs the consumer, and [ErrUnknown] if there is no such consumer.
func (c *Consumers) Forget(ctx context.Context, name string, by operator.By) error {
	what := fmt.Sprintf("%s consumer %s", operator.Forget, name)
	err := by.Validate(operator.Forget)
	if err == nil {
		err = c.isGone(ctx, name)
	}
	if err != nil {
		return store.Wrap(what, err)
	}
	var gone int
	args := []any{name, by.Actor, pgsql.CleanText(by.Reason), string(operator.Forget)}
	err = c.h.AdHoc().QueryRow(ctx, c.h.DB(ctx), forgetConsumer, args, &gone)
	if err == nil && gone == 0 {
		err = ErrRuns
	}
	return store.Wrap(what, err)
}

// isGone returns an error if the consumer runs, or never has.
func (c *Consumers) isGone(ctx context.Context, name string) error {
	all, err := c.state.Consumers(ctx)
	if err != nil {
		return err
	}
	for n := range all {
		switch {
		case all[n].Consumer != name:
		case all[n].Runs:
			return ErrRuns
		default:
			return nil
		}
	}
	return ErrUnknown
}

// validate returns an error for a name that no pause can have.
func validate(name string) error {
	switch family := store.Family(name); {
	case name == "":
		return errors.New("the name of the consumer is empty")
	case family != name:
		return fmt.Errorf("%s is a generation of the read model %s: give the name of the read model", name, family)
	default:
		return event.ValidateIdentifier("consumer", name)
	}
}
