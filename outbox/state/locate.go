package state

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/seek"
)

// Located is an event with its place in the outbox.
type Located struct {
	// Row is the event, without its payload.
	outboxdb.Row
	// Status is one of the constants, for example StatusNew.
	Status string
	// Error is the last refusal, "" if there was none or the event was published.
	Error string
	// RetryAfter is when an event that waits for a time may be tried. SentAt is when it was published, and
	// DiedAt when it was given up.
	RetryAfter, SentAt, DiedAt time.Time
	// BehindID is the id of the event of its key that it waits for: a dead letter or a refused event. "" if
	// it waits for none.
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
		THEN '` + outboxdb.StatusPublishing + `' ELSE '` + outboxdb.StatusNew + `' END AS status,
		'' AS error_message, NULL::timestamptz AS retry_after, NULL::timestamptz AS sent_at, NULL::timestamptz AS died_at
	FROM {schema}.outbox_unsent o WHERE id = $1::uuid
	UNION ALL
	SELECT {columns}, CASE WHEN retry_count > 0 THEN '` + outboxdb.StatusFailed + `' ELSE '` + outboxdb.StatusNew + `' END,
		coalesce(error_message, ''), nullif(retry_after, 'infinity'), NULL, NULL
	FROM {schema}.outbox_held WHERE id = $1::uuid
	UNION ALL
	SELECT {columns}, '` + outboxdb.StatusDead + `', coalesce(error_message, ''), NULL, NULL, died_at
	FROM {schema}.outbox_dead WHERE id = $1::uuid) x
ORDER BY seq`

	// locateSent reads the partitions of the time from $2 to $3: events that were recorded then, and events that were
	// published then out of their turn.
	locateSent = `
SELECT {columns but payload}, NULL::bytea AS payload` + outboxdb.RowEnd + `,
	'` + outboxdb.StatusSent + `', '', NULL::timestamptz, sent_at, NULL::timestamptz, ''
FROM {schema}.outbox_published p WHERE id = $1::uuid AND within >= $2::timestamptz AND within < $3::timestamptz ORDER BY seq`
)

// Locate finds the event with this id, whether it waits, is dead or was published. There are several if the producer
// gave the id to several events ([event.WithID]), and none if the event was recorded elsewhere, or was removed: when it
// was cancelled, discarded, or after the retention of the database, see outbox.Store.Upkeep().KeptFor.
//
// Waiting events are read completely, because they have no index on ids: a third of a second for a million
// rows. If the event is not among them, the days on which it may have been published are read, one after
// the other until it is found: about a second for a million rows. An id that the store has made contains
// the first of the days; for any other id it reads all days.
func (s *Reader) Locate(ctx context.Context, id string) ([]Located, error) {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return nil, fmt.Errorf("outbox: locate %q: it is not a UUID: %w", id, err)
	}
	list, err := s.locate(ctx, locateUnsent, parsed.String())
	if err != nil || len(list) > 0 {
		return list, outboxdb.Wrap("locate an event", err)
	}
	var now time.Time
	if err := s.box.Run.QueryRow(ctx, s.box.DB, `SELECT clock_timestamp()`, nil, &now); err != nil {
		return nil, outboxdb.Wrap("read the time of the database", err)
	}
	// Refused rows may move between the tables while they are read. A published row does not move any more,
	// so it is looked for last.
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
	// clockSkew is how far the clocks of writers and database may be apart.
	clockSkew = 10 * time.Minute
)

// recordedAt returns the time in a UUIDv7, zero for other ids.
func recordedAt(id uuid.UUID) time.Time {
	if id.Version() != 7 {
		return time.Time{}
	}
	return time.Unix(id.Time().UnixTime())
}

func (s *Reader) locate(ctx context.Context, statement string, args ...any) ([]Located, error) {
	return pgsql.Collect(s.box.AdHoc().Query(ctx, s.box.DB, statement, args...), func(scan pgsql.Scan, l *Located) error {
		var retry, sent, died sql.NullTime
		err := outboxdb.ScanRow(scan, &l.Row, &l.Status, &l.Error, &retry, &sent, &died, &l.BehindID)
		l.RetryAfter, l.SentAt, l.DiedAt = retry.Time, sent.Time, died.Time
		return err
	})
}

// Failing is a refused event that waits for its next try and is the first of its key. Its payload is not read.
type Failing struct {
	outboxdb.Row
	// RetryAfter is when its next try may be. Zero: no relay will try it, because other hands have changed its row; [Reader.Disorder] has the
	// statement that mends it.
	RetryAfter time.Time
	// Error is the last refusal, at most 2 KiB of it.
	Error string
	// Fingerprint is that of the refusal, see package operator/failures.
	Fingerprint string
}

// Failing lists refused events that wait for their next try, the oldest first, at most limit (0: 100). For
// a key it lists only the first event, because the others wait for it. For events without a key it reads
// the 100 of each lane that are due next.
func (s *Reader) Failing(ctx context.Context, limit int) ([]Failing, error) {
	if limit <= 0 {
		limit = 100
	}
	list, err := pgsql.Collect(s.box.AdHoc().Query(ctx, s.box.DB, outboxdb.FailingRows, limit), func(scan pgsql.Scan, f *Failing) error {
		var retry sql.NullTime
		err := outboxdb.ScanRow(scan, &f.Row, &retry, &f.Error, &f.Fingerprint)
		f.RetryAfter = retry.Time
		return err
	})
	return list, outboxdb.Wrap("list failing events", err)
}

// Search finds events by what an operator knows of them: an id, an aggregate id, a correlation id or a causation id, or the beginning of one; an ordering
// key; or a tenant. The newest come first, at most limit (0: 100), from before on (zero: from now on).
//
// No index fits all of these, and one for each would make every event dearer to record. So it reads the events that wait or are dead, and then the past,
// the latest first: about a second for a million events. It ends when it has found limit events, or when within is over; at least the last quarter of
// an hour before its beginning is always searched. [Matches.Back] says how far back it has come; go on with before set to it.
func (s *Reader) Search(ctx context.Context, text string, before time.Time, within time.Duration, limit int) (Matches, error) {
	sought, err := seek.New(text)
	if err != nil {
		return Matches{}, outboxdb.Wrap("search events", err)
	}
	if limit <= 0 {
		limit = 100
	}
	search := &search{box: s.box, args: append(sought.Args(), limit+1), limit: limit}
	if err := search.run(ctx, before, within); err != nil {
		return Matches{}, outboxdb.Wrap("search events", err)
	}
	found := search.found
	if len(found.List) > limit {
		found.List, found.More = found.List[:limit], true
	}
	return found, nil
}
