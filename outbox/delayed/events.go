// Package delayed is for events that wait for their time: it lists, cancels and reschedules them.
//
//	cancelled, err := store.Delayed().CancelKey(ctx, tx, "hold "+reservation)
//	err := store.Delayed().Cancel(ctx, tx, id)
//	list, err := store.Delayed().List(ctx, tx, delayed.Filter{AggregateType: "order", AggregateID: "7"}, nil, 0)
//
// Read first: events.go:Events.Cancel.
package delayed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/outbox/state"
)

// ErrTooLate means that no event with this id can be cancelled or moved: its time has come, so it was published, is dead or may be on
// its way; or it was cancelled before; or the tenant has no event with this id that was delayed without [event.WithOrderingKey].
var ErrTooLate = errors.New("outbox: there is no delayed event with this id that can be changed: its time has come, it was cancelled, or it has an " +
	"ordering key")

const (
	// findTimed locks the rows with the id $1 of the tenant $2 whose time has not come. In the log the id determines the lane: number $4 of the $3 lanes
	// of each group. outbox_held has an index.
	//
	// The clock is compared before the lock, so that rows which a relay is about to publish are not locked, and again after it: see
	// internal/lanedb/delay.go.
	findTimed = `
WITH waiting AS MATERIALIZED (
	SELECT o.lane, o.seq, o.not_before FROM {schema}.outbox o
	WHERE o.lane = ANY (ARRAY(SELECT l.lane FROM {schema}.outbox_lane l WHERE l.lane % $3::int = $4::int))
		AND o.id = $1::uuid AND o.tenant_id = $2 AND o.ordering_key IS NULL AND o.not_before > clock_timestamp() FOR UPDATE),
held AS MATERIALIZED (
	SELECT h.lane, h.seq, h.not_before FROM {schema}.outbox_held h
	WHERE h.id = $1::uuid AND h.tenant_id = $2 AND h.ordering_key IS NULL AND h.not_before > clock_timestamp() FOR UPDATE),`

	cancelTimed = findTimed + `
a AS (
	DELETE FROM {schema}.outbox o USING waiting w
	WHERE o.lane = w.lane AND o.seq = w.seq AND w.not_before > clock_timestamp() RETURNING 1),
b AS (
	DELETE FROM {schema}.outbox_held h USING held x
	WHERE h.lane = x.lane AND h.seq = x.seq AND x.not_before > clock_timestamp() RETURNING 1)` + countTimed

	moveTimed = findTimed + `
a AS (
	UPDATE {schema}.outbox o SET not_before = $5 FROM waiting w
	WHERE o.lane = w.lane AND o.seq = w.seq AND w.not_before > clock_timestamp() RETURNING 1),
b AS (
	UPDATE {schema}.outbox_held h SET not_before = $5, retry_after = $5 FROM held x
	WHERE h.lane = x.lane AND h.seq = x.seq AND x.not_before > clock_timestamp() RETURNING 1)` + countTimed

	countTimed = ` SELECT (SELECT count(*) FROM a) + (SELECT count(*) FROM b)`

	listDelayed = `
SELECT ` + outboxdb.RowColumns + ` FROM (
	SELECT {columns but payload}, NULL::bytea AS payload FROM {schema}.outbox
	WHERE not_before IS NOT NULL AND ordering_key IS NULL AND not_before > clock_timestamp()
	UNION ALL
	SELECT {columns but payload}, NULL::bytea AS payload FROM {schema}.outbox_held WHERE not_before IS NOT NULL AND ordering_key IS NULL) d
WHERE %s ORDER BY d.not_before, d.seq LIMIT %s`
)

// Events are the delayed events of an outbox. It is safe for concurrent use.
type Events struct{ box *outboxdb.Handle }

// New is for package outbox: see outbox.Store.Delayed.
func New(box *outboxdb.Handle) *Events { return &Events{box} }

// Cancel deletes a delayed event in tx, before its time has come. If tx commits, the event is never published. The event must belong to the tenant
// of ctx ([event.WithTenant]), or to outbox.Config.DefaultTenantID if ctx has none, and must have been delayed by [event.WithNotBefore] without
// [event.WithOrderingKey].
//
// It returns [ErrTooLate] if the time has come or no such event waits; tx can go on then. The server's clock at the call decides, not at the COMMIT:
// until tx ends, relays leave the event alone. The promise does not hold if the server's clock is set back.
//
// The key of [event.WithDedupKey] stays taken: an event that repeats the cancelled one is not stored. [Events.CancelKey] cancels by the key and frees it.
func (e *Events) Cancel(ctx context.Context, tx bun.Tx, id string) error {
	return e.changeTimed(ctx, tx, "cancel", cancelTimed, id)
}

// Reschedule gives a delayed event another time, under the conditions and with the error of [Events.Cancel]. With a time in the past the
// event is published at once. If the new time is earlier than the one before, a projector may be late by its SleepIdle.
func (e *Events) Reschedule(ctx context.Context, tx bun.Tx, id string, at time.Time) error {
	if year := at.UTC().Year(); at.IsZero() || year < 1 || year > 9999 {
		return fmt.Errorf("outbox: reschedule %s: %w", id, &event.InvalidError{Field: "at", Reason: fmt.Sprintf("is %s", at)})
	}
	return e.changeTimed(ctx, tx, "reschedule", moveTimed, id, at)
}

func (e *Events) changeTimed(ctx context.Context, tx bun.Tx, what, statement, id string, more ...any) error {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return fmt.Errorf("outbox: %s %q: %w", what, id, ErrTooLate)
	}
	l, err := e.box.Layout(ctx, e.box.On(tx))
	if err != nil {
		return fmt.Errorf("outbox: %s %s: %w", what, id, err)
	}
	lane, _ := l.Place("", parsed.String())
	args := append([]any{parsed.String(), e.tenant(ctx), l.Lanes, lane}, more...)
	// If a relay moves the row to outbox_held during the first statement, that statement sees it in neither table.
	for range 2 {
		var changed int
		if err := e.box.Run.QueryRow(ctx, tx, statement, args, &changed); err != nil {
			return fmt.Errorf("outbox: %s %s: %w", what, id, pgerr.Explain(err))
		}
		if changed > 0 {
			return nil
		}
	}
	return fmt.Errorf("outbox: %s %s: %w", what, id, ErrTooLate)
}

// defaultPage is the number of events on a page if the caller sets no limit.
const defaultPage = 100

// Filter selects delayed events that match every field that is set. The zero filter selects all.
type Filter struct {
	TenantID, AggregateType, AggregateID string
	// Overdue also selects events whose time has come and that were not published yet, as far as a relay has seen them. [Events.Cancel] cannot change
	// them any more.
	Overdue bool
}

// Validate names every field that cannot be used.
func (f Filter) Validate() error {
	return errors.Join(
		event.ValidateIdentifier("outbox: delayed.Filter.TenantID", f.TenantID),
		event.ValidateIdentifier("outbox: delayed.Filter.AggregateType", f.AggregateType),
		event.ValidateIdentifier("outbox: delayed.Filter.AggregateID", f.AggregateID))
}

// List lists the delayed events that the filter selects, without their payloads, in the order of their times. Without Filter.Overdue it lists only events
// that [Events.Cancel] would still cancel. db is a transaction, whose own changes count, or the pool. A page has at most limit of them (0: 100) and begins
// after the last one of the page before (nil: from the start). Only its time and its sequence count.
//
// With tenant and aggregate the list uses an index. Unpublished events that no relay has looked at are read one by one all the same.
func (e *Events) List(ctx context.Context, db bun.IDB, filter Filter, after *state.Row, limit int) ([]state.Row, error) {
	if err := filter.Validate(); err != nil {
		return nil, err
	}
	if limit <= 0 {
		limit = defaultPage
	}
	w := &pgsql.Where{}
	if !filter.Overdue {
		w.Add("d.not_before > clock_timestamp()")
	}
	for _, c := range []struct{ column, value string }{
		{"d.tenant_id", filter.TenantID}, {"d.aggregate_type", filter.AggregateType}, {"d.aggregate_id", filter.AggregateID},
	} {
		if c.value != "" {
			w.Add(c.column+" = %s::text", c.value)
		}
	}
	if after != nil {
		w.Add("(d.not_before, d.seq) > (%s::timestamptz, %s::bigint)", after.Delivery.NotBefore, after.Sequence)
	}
	bound := w.Arg(limit)
	out, err := outboxdb.ScanRows(e.box.AdHoc().Query(ctx, db, fmt.Sprintf(listDelayed, w, bound), w.Args...))
	return out, outboxdb.Wrap("list delayed events", err)
}
