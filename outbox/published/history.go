package published

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

const (
	// onTheirWay returns a number for each lane: rows up to it may have been published.
	onTheirWay = `
SELECT coalesce(json_object_agg(l.lane, (SELECT x.upto FROM {schema}.outbox_claim x WHERE x.lane = l.lane ORDER BY x.n DESC LIMIT 1)), '{}')::text
FROM {schema}.outbox_lane l`

	// unsettled counts the rows up to these numbers that may be published, but are not recorded as published.
	unsettled = `
SELECT count(*) FROM json_each_text($1::json) t JOIN {schema}.outbox_unsent o ON o.lane = t.key::smallint AND o.seq <= t.value::bigint`

	databaseNow = `SELECT clock_timestamp()`

	// settleTime is longer than any statement that records a publication: such a statement ends with the lease of
	// its lane at the latest.
	settleTime = time.Minute
)

// keptFrom is a checkpoint of [Events.History].
type keptFrom struct {
	// After is the highest sequence that was handed over.
	After int64 `json:"after"`
	// Began is a time. Events that were published later are handed over whatever their sequence is: the first call may have come too early to
	// see them, and the later events of their keys must not be handled before them.
	Began time.Time `json:"began"`
}

// History returns a source for the rebuild of a readmodel.Model: the published events of this outbox, as far back as the retention reaches, in the order
// of their sequence, on the topics on which they were published.
//
// The first call, with the checkpoint "", waits until the events that are on their way to the broker are recorded as published or refused, because a
// consumer may have handled them already. So a relay has to be running. At its end the source looks once more for events that were published
// meanwhile. An event may come twice: at the end, and after a checkpoint. The source does not work through a transaction-mode pooler, as
// [Events.Replay] does not.
func (e *Events) History(filter Filter) func(ctx context.Context, checkpoint string, to func(context.Context, []event.Envelope, string) error) error {
	return func(ctx context.Context, checkpoint string, to func(context.Context, []event.Envelope, string) error) error {
		from, err := e.keptFrom(ctx, checkpoint)
		if err = errors.Join(filter.Validate(), err); err != nil {
			return outboxdb.Wrap("read the events that are kept", err)
		}
		// Twice, because events with lower sequences may have been published during the first pass.
		for range 2 {
			if err := e.handOver(ctx, filter, &from, to); err != nil {
				return outboxdb.Wrap("read the events that are kept", err)
			}
		}
		return nil
	}
}

// keptFrom returns the place to begin at.
func (e *Events) keptFrom(ctx context.Context, checkpoint string) (from keptFrom, err error) {
	if e.box.Pooler {
		return from, errPooled
	}
	if checkpoint != "" {
		if err := json.Unmarshal([]byte(checkpoint), &from); err != nil {
			return from, fmt.Errorf("checkpoint %q is none of this source: %w", checkpoint, err)
		}
		return from, nil
	}
	if err := e.awaitSettled(ctx); err != nil {
		return from, err
	}
	err = e.box.Run.QueryRow(ctx, e.box.DB, databaseNow, nil, &from.Began)
	// A statement that records publications at this moment commits times that are earlier, by at most settleTime.
	from.Began = from.Began.Add(-settleTime).UTC()
	return from, err
}

// handOver hands over the published events behind from, and moves from.
func (e *Events) handOver(ctx context.Context, filter Filter, from *keptFrom, to func(context.Context, []event.Envelope, string) error) error {
	// The condition stays as it was at the beginning while from moves on, so that rows that are sorted
	// once more are selected as before.
	known := *from
	where := func(after int64) *pgsql.Where {
		w := filter.where(after)
		if known.After > 0 {
			w.Add("(s.seq > %s::bigint OR s.sent_at >= %s::timestamptz)", known.After, known.Began)
		}
		return w
	}
	return e.each(ctx, where, 0, 0, func(rows []outboxdb.Row) error {
		events := make([]event.Envelope, len(rows))
		for i := range rows {
			events[i] = rows[i].Envelope
			events[i].Delivery = event.Delivery{} // how it was to be published
		}
		from.After = max(from.After, rows[len(rows)-1].Sequence)
		behind, err := json.Marshal(from)
		if err != nil {
			return fmt.Errorf("outbox: read published events: encode the checkpoint: %w", err)
		}
		return to(ctx, events, string(behind))
	})
}

// awaitSettled waits for the rows that may be on their way to the broker at this moment. It does not wait for held rows: the relay sends them again.
func (e *Events) awaitSettled(ctx context.Context) error {
	var lanes string
	if err := e.box.Run.QueryRow(ctx, e.box.DB, onTheirWay, nil, &lanes); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		var n int64
		if err := e.box.Run.QueryRow(ctx, e.box.DB, unsettled, []any{lanes}, &n); err != nil || n == 0 {
			return err
		}
		// The pauses grow to a second, so this warns about every 20 seconds.
		if attempt%20 == 0 {
			e.box.Log.WarnContext(ctx, "oncebox: the read of published events waits until a relay has stored the outcome of events that it has sent to "+
				"the broker", "events", n)
		}
		if err := backoff.Wait(ctx, backoff.Exponential(attempt, 5*time.Millisecond, time.Second)); err != nil {
			return fmt.Errorf("no relay has stored the outcome of %d events that were sent to the broker; start a relay and try again: %w", n, err)
		}
	}
}
