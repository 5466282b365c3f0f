package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox"
)

// unitSize is the number of events in one transaction when a backlog is stored.
const unitSize = 2000

// backlog is a number of unsent events, spread evenly over the aggregates.
type backlog struct {
	topic    string
	versions int // of each aggregate
	// shared is a tally that several runs use together; nil: each run has its own.
	shared *tally
}

func (b backlog) size() int { return b.versions * aggregates }

// tally returns a tally that expects this backlog, or the shared one.
func (b backlog) tally() *tally {
	if b.shared != nil {
		return b.shared
	}
	ids := make([]string, aggregates)
	for i := range ids {
		ids[i] = accountID(i)
	}
	return newTally(ids, b.versions)
}

// fill stores the backlog with the store's own Flush, so that the rows are the same as those of a unit of work.
func (b backlog) fill(ctx context.Context, db *bun.DB, store *outbox.Store) error {
	for first := 0; first < b.size(); first += unitSize {
		if err := b.store(ctx, db, store, first, min(unitSize, b.size()-first)); err != nil {
			return fmt.Errorf("prefill: %w", err)
		}
	}
	return nil
}

// store stores n events in one transaction, beginning with number first.
func (b backlog) store(ctx context.Context, db *bun.DB, store *outbox.Store, first, n int) error {
	payload, err := newMoneyMoved(accountID(0)).encode()
	if err != nil {
		return err
	}
	unit := make([]event.Envelope, n)
	for i := range unit {
		if unit[i], err = b.envelope(first+i, payload); err != nil {
			return err
		}
	}
	return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error { return store.Flush(ctx, tx, unit) })
}

func (b backlog) envelope(n int, payload []byte) (event.Envelope, error) {
	return envelopeOf(b.topic, accountID(n%aggregates), int64(n/aggregates)+1, payload)
}

func envelopeOf(topic, account string, version int64, payload []byte) (event.Envelope, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return event.Envelope{}, err
	}
	return event.Envelope{
		ID: id.String(), Type: moneyMoved{}.EventType(), Source: source, SchemaVersion: 1, TenantID: tenant,
		AggregateType: accountType, AggregateID: account, AggregateVersion: version,
		Topic: topic, RoutingKey: account, OccurredAt: time.Now().UTC().Truncate(time.Microsecond), ContentType: event.ContentTypeJSON,
		Metadata: metadata(), Payload: payload,
	}, nil
}

const countRows = `
SELECT (SELECT count(*) FROM outbox_unsent), (SELECT count(*) FROM outbox_held), (SELECT count(*) FROM outbox_dead),
	(SELECT count(*) FROM outbox_published)`

// verify checks the rows that are left when everything was published: only those of the archive may be.
func (b backlog) verify(ctx context.Context, db *bun.DB, archived bool) error {
	var unsent, held, dead, sent int
	if err := db.DB.QueryRowContext(ctx, countRows).Scan(&unsent, &held, &dead, &sent); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	want := 0
	if archived {
		want = b.size()
	}
	if unsent+held+dead > 0 || sent != want {
		return fmt.Errorf("%w: all %d events are published, but there are %d unsent, %d held, %d dead and %d archived rows",
			errWrong, b.size(), unsent, held, dead, sent)
	}
	return nil
}
