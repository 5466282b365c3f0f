package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/seek"
	"github.com/oncebox/oncebox/operator"
)

// Place is the state of a message at one consumer.
type Place string

// The places.
const (
	// PlaceSettled: the message was handled. Or it was a dead letter that an operator discarded (see inbox.Inbox.Audit) or Config.DeadRetention
	// removed.
	PlaceSettled Place = "settled"
	// PlaceTried: a try failed or may be going on, and the message is at the broker.
	PlaceTried Place = "tried"
	// PlaceParked: it waits in the database.
	PlaceParked Place = "parked"
	// PlaceDead: it was given up.
	PlaceDead Place = "dead"
)

// Located is a message at one consumer.
type Located struct {
	Key   operator.MessageRef
	Place Place
	// Envelope is the message without its payload. Of a message that is settled or tried only the key is kept.
	Envelope event.Envelope
	// At is, by Place: when the message was entered (settled; that is when it was handled or, before that, parked), last tried, parked, or
	// given up.
	At time.Time
	// Attempts counts its tries, as far as they are known, and Error is the last error. Both are removed when the message is settled.
	Attempts int
	Error    string
	// FailingSince is when a parked message began to fail, zero if it has not failed. DueAt is when its key may run next, zero if an
	// operator has to decide.
	FailingSince, DueAt time.Time
	// Holds says that the later messages of its key wait for it.
	Holds bool
	// Behind is the MessageKey of the message that a parked message waits for, "" for the first message of its key.
	Behind string
	// Steps lists the steps that are done, see step.Call. They are removed when the message is settled.
	Steps []DoneStep
}

// DoneStep is a step of a message that is done.
type DoneStep struct {
	Name string
	At   time.Time
}

const (
	// locateMessages looks at all tables with one snapshot, because messages move between them. A message that is parked or dead has an entry
	// as well.
	locateMessages = `
SELECT {message read}, place, at, attempts, error_message, failing_since, due_at, holds, behind FROM (
	SELECT {message but payload}, '` + string(PlaceParked) + `' AS place, parked_at AS at, attempts, error_message, failing_since,
		(SELECT nullif(k.due_at, 'infinity') FROM {schema}.inbox_key k WHERE k.consumer = p.consumer AND k.key_lock = p.key_lock) AS due_at,
		ordering_key IS NOT NULL AS holds, coalesce(
			(SELECT o.message_key FROM {schema}.inbox_dead o
				WHERE o.key_lock = p.key_lock AND o.seq < p.seq AND o.consumer = p.consumer AND o.holds ORDER BY o.key_lock, o.seq LIMIT 1),
			(SELECT o.message_key FROM {schema}.inbox_parked o
				WHERE o.consumer = p.consumer AND o.key_lock = p.key_lock AND o.seq < p.seq ORDER BY o.seq LIMIT 1))::text AS behind
	FROM {schema}.inbox_parked p WHERE message_key = ANY ($1::uuid[])
	UNION ALL
	SELECT {message but payload}, '` + string(PlaceDead) + `', died_at, attempts, error_message, NULL, NULL, holds, NULL
	FROM {schema}.inbox_dead WHERE message_key = ANY ($1::uuid[])
	UNION ALL
	SELECT {message absent}, '` + string(PlaceSettled) + `', processed_at, 0, '', NULL, NULL, false, NULL
	FROM {schema}.inbox WHERE message_key = ANY ($1::uuid[])
	UNION ALL
	SELECT {message absent}, '` + string(PlaceTried) + `', tried_at, attempts, error_message, NULL, NULL, false, NULL
	FROM {schema}.inbox_attempt WHERE message_key = ANY ($1::uuid[])) l
ORDER BY tenant_id, source, consumer, message_key`

	locateSteps = `
SELECT message_key::text, consumer, tenant_id, source, name, done_at FROM {schema}.inbox_step
WHERE message_key = ANY ($1::uuid[]) ORDER BY done_at, name`
)

// MessageKey is the MessageKey of an [operator.MessageRef] of the message with this id from this source: the id itself for an event of an outbox.
func MessageKey(source, id string) string { return store.MessageKey(source, id).String() }

// Locate finds messages by their keys at all consumers of this database, ordered by tenant, source and consumer. A consumer that never had
// a message, or whose entry is older than inbox.Config.Retention, is not in the list. The search uses indexes only.
func (r *Reader) Locate(ctx context.Context, messageKeys ...string) ([]Located, error) {
	keys := make([]string, len(messageKeys))
	var errs []error
	for n, key := range messageKeys {
		parsed, err := uuid.Parse(key)
		if err != nil {
			errs = append(errs, fmt.Errorf("the message key %q is not a UUID: %w", key, err))
		}
		keys[n] = parsed.String()
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("inbox: locate: %w", err)
	}
	var list []Located
	err := pgsql.Each(r.h.AdHoc().Query(ctx, r.h.DB(ctx), locateMessages, keys), func(scan pgsql.Scan) error {
		l, err := scanLocated(scan)
		if err != nil {
			return err
		}
		// The order of the statement puts the rows of one message side by side.
		if last := len(list) - 1; last >= 0 && list[last].Key == l.Key {
			list[last] = list[last].with(l)
		} else {
			list = append(list, l)
		}
		return nil
	})
	if err != nil {
		return nil, store.Wrap("locate a message", err)
	}
	return list, store.Wrap("locate the steps of a message", r.addSteps(ctx, list, keys))
}

func scanLocated(scan pgsql.Scan) (l Located, err error) {
	var failing, due sql.NullTime
	var behind sql.NullString
	l.Key, l.Envelope, err = store.ScanEnvelope(scan, &l.Place, &l.At, &l.Attempts, &l.Error, &failing, &due, &l.Holds, &behind)
	l.FailingSince, l.DueAt, l.Behind = failing.Time, due.Time, behind.String
	return l, err
}

// with chooses between two rows of one message. A parked message or a dead letter also has an entry, which says less. A row of tries beside
// an entry is out of date.
func (l Located) with(other Located) Located {
	rank := map[Place]int{PlaceTried: 0, PlaceSettled: 1, PlaceDead: 2, PlaceParked: 3}
	if rank[other.Place] > rank[l.Place] {
		return other
	}
	return l
}

// addSteps adds the steps that are done. They have a table of their own, and exist only until the message is settled.
func (r *Reader) addSteps(ctx context.Context, list []Located, keys []string) error {
	return pgsql.Each(r.h.AdHoc().Query(ctx, r.h.DB(ctx), locateSteps, keys), func(scan pgsql.Scan) error {
		var k operator.MessageRef
		var step DoneStep
		if err := scan(&k.MessageKey, &k.Consumer, &k.TenantID, &k.Source, &step.Name, &step.At); err != nil {
			return err
		}
		for n := range list {
			if list[n].Key == k {
				list[n].Steps = append(list[n].Steps, step)
			}
		}
		return nil
	})
}

// Search finds messages at all consumers by what outbox.Store.State().Search takes, the newest first, at most limit (0: 100). Of handled messages only
// the key is kept, so they are found by their id alone, or the beginning of it. Messages that wait or are dead are found by every property.
func (r *Reader) Search(ctx context.Context, text string, limit int) (list []Match, more bool, err error) {
	sought, err := seek.New(text)
	if err != nil {
		return nil, false, store.Wrap("search messages", err)
	}
	if limit <= 0 {
		limit = store.DefaultPage
	}
	rows := r.h.AdHoc().Query(ctx, r.h.DB(ctx), searchMessages(), append(sought.Args(), limit+1)...)
	list, err = pgsql.Collect(rows, func(scan pgsql.Scan, m *Match) (err error) {
		m.Key, m.Envelope, err = store.ScanEnvelope(scan, &m.Place, &m.At, &m.By)
		return err
	})
	return list[:min(len(list), limit)], len(list) > limit, store.Wrap("search messages", err)
}
