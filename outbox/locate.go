package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Located is an event and where it is.
type Located struct {
	// Row is without its payload.
	Row
	// Status is one of the constants, [StatusNew] for example.
	Status string
	// Error is the last refusal, "" if there was none or the event was published.
	Error string
	// RetryAfter is when it may be tried, if it waits for a time. SentAt is when it was published, DiedAt when it was given up.
	RetryAfter, SentAt, DiedAt time.Time
	// BehindID is the event of its key for which it waits: a dead letter, or one that was refused. "" if it waits for none.
	BehindID string
}

const (
	locatedColumns = `{columns but payload}, NULL::bytea AS payload` + outboxdb.RowEnd + `, status, error_message, retry_after, sent_at, died_at,
	coalesce((SELECT coalesce(
			(SELECT h.id FROM {schema}.outbox_held h WHERE h.lane = b.lane AND h.seq = b.head_seq),
			(SELECT d.id FROM {schema}.outbox_dead d WHERE d.lane = b.lane AND d.seq = b.head_seq))::text
		FROM {schema}.outbox_block b WHERE b.lane = x.lane AND b.ordering_key = x.ordering_key AND b.head_seq <> x.seq), '')`

	// locateUnsent looks at all tables of rows that are not published with one snapshot, because rows move between them. Only outbox_dead has an
	// index on all ids.
	locateUnsent = `
SELECT ` + locatedColumns + `
FROM (
	SELECT {columns}, CASE WHEN EXISTS (SELECT FROM {schema}.outbox_taken t WHERE t.lane = o.lane AND (o.seq <= t.upto OR o.seq = ANY (t.picked)))
		THEN '` + StatusPublishing + `' ELSE '` + StatusNew + `' END AS status,
		'' AS error_message, NULL::timestamptz AS retry_after, NULL::timestamptz AS sent_at, NULL::timestamptz AS died_at
	FROM {schema}.outbox_unsent o WHERE id = $1::uuid
	UNION ALL
	SELECT {columns}, CASE WHEN retry_count > 0 THEN '` + StatusFailed + `' ELSE '` + StatusNew + `' END,
		coalesce(error_message, ''), nullif(retry_after, 'infinity'), NULL, NULL
	FROM {schema}.outbox_held WHERE id = $1::uuid
	UNION ALL
	SELECT {columns}, '` + StatusDead + `', coalesce(error_message, ''), NULL, NULL, died_at
	FROM {schema}.outbox_dead WHERE id = $1::uuid) x
ORDER BY seq`

	// locateSent reads the partitions of the time from $2 to $3: what was recorded then, and what was published out of its turn then.
	locateSent = `
SELECT {columns but payload}, NULL::bytea AS payload` + outboxdb.RowEnd + `, '` + StatusSent + `', '', NULL::timestamptz, sent_at, NULL::timestamptz, ''
FROM {schema}.outbox_published p WHERE id = $1::uuid AND within >= $2::timestamptz AND within < $3::timestamptz ORDER BY seq`
)

// Locate finds the event with this id, whether it waits, is dead or was published. There are several if the producer gave the id to several
// events ([event.WithID]), and none if the event was recorded elsewhere, or was removed: when it was cancelled, discarded, or after the retention of
// the database, see [Store.KeptFor].
//
// What waits is read from end to end, because it has no index on ids: a third of a second for a million rows. If the event is not among them,
// the days on which it may have been published are read, one after the other until it is found: about a second for a million rows. An id that
// the store has made tells the first of the days; for another one it reads all.
func (s *Store) Locate(ctx context.Context, id string) ([]Located, error) {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return nil, fmt.Errorf("outbox: locate %q: it is not a UUID: %w", id, err)
	}
	list, err := s.locate(ctx, locateUnsent, parsed.String())
	if err != nil || len(list) > 0 {
		return list, outboxdb.Wrap("locate an event", err)
	}
	var now time.Time
	if err := s.sql.QueryRow(ctx, s.db, databaseNow, nil, &now); err != nil {
		return nil, outboxdb.Wrap("ask for the time", err)
	}
	// What was refused moves from one table to the other while they are read, but a row that is published stays so.
	from := recordedAt(parsed)
	if from.IsZero() {
		list, err = s.locate(ctx, locateSent, parsed.String(), time.Unix(0, 0), now.Add(day))
		return list, outboxdb.Wrap("locate an event", err)
	}
	for from = from.Add(-clockSkew).UTC().Truncate(day); len(list) == 0 && err == nil && from.Before(now.Add(day)); from = from.Add(day) {
		list, err = s.locate(ctx, locateSent, parsed.String(), from, from.Add(day))
	}
	return list, outboxdb.Wrap("locate an event", err)
}

const (
	day = 24 * time.Hour
	// clockSkew is how much the clocks of writers and database may differ.
	clockSkew = 10 * time.Minute
)

// recordedAt is the time in a UUIDv7, and zero for other ids.
func recordedAt(id uuid.UUID) time.Time {
	if id.Version() != 7 {
		return time.Time{}
	}
	return time.Unix(id.Time().UnixTime())
}

func (s *Store) locate(ctx context.Context, statement string, args ...any) ([]Located, error) {
	return pgsql.Collect(s.adHoc().Query(ctx, s.db, statement, args...), func(scan pgsql.Scan, l *Located) error {
		var retry, sent, died sql.NullTime
		err := outboxdb.ScanRow(scan, &l.Row, &l.Status, &l.Error, &retry, &sent, &died, &l.BehindID)
		l.RetryAfter, l.SentAt, l.DiedAt = retry.Time, sent.Time, died.Time
		return err
	})
}

// KeptFor returns how long published events are kept in this database, whatever this store is configured to: [NoRetention] and [KeepForever]
// have their meaning of [Config.Retention].
func (s *Store) KeptFor(ctx context.Context) (time.Duration, error) {
	p, err := s.askPolicy(ctx)
	return p.retention, outboxdb.Wrap("ask for the retention", err)
}
