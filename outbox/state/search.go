package state

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/seek"
)

// Match is an event that a search has found.
type Match struct {
	ID, Type, Topic, Tenant, Source string
	AggregateType, AggregateID      string
	// Key is the ordering key, "" for an event without order.
	Key string
	// CreatedAt is when it was recorded.
	CreatedAt time.Time
	// Status is one of the constants, for example StatusNew. StatusPublishing is shown as StatusNew.
	Status string
	// By is the property that fits: "id", "aggregate id", "ordering key", "correlation id", "causation id" or "tenant".
	By string
}

// Matches is the result of a search.
type Matches struct {
	// List has the events, the newest first.
	List []Match
	// More is true if there may be more events than the limit.
	More bool
	// Back is how far the search has come: events that were recorded before it, and have left the outbox, were not looked at. Zero: all were. A search
	// always comes back further than where it began.
	Back time.Time
}

const (
	searchColumns = `r.id, r.event_type, r.topic, r.tenant_id, r.source, r.aggregate_type, r.aggregate_id, r.ordering_key,
	r.created_at, r.event_metadata, r.lane, r.seq`
	searchedWith = `SELECT m.id::text, m.event_type, m.topic, m.tenant_id, m.source, m.aggregate_type, m.aggregate_id, coalesce(m.ordering_key, ''),
	m.created_at, coalesce(m.status, ` + ofLog + `), m.by FROM (`
	searchEnd = `) m WHERE m.by IS NOT NULL ORDER BY m.created_at DESC, m.id DESC LIMIT $6::int`

	// ofLog is the status of a row m of the log. It is read for the rows that are returned alone: a tenant may have a million others.
	ofLog = `(SELECT CASE WHEN m.seq <= c.sent OR m.seq <@ c.ahead THEN '` + outboxdb.StatusSent + `' ELSE '` + outboxdb.StatusNew + `' END
		FROM {schema}.outbox_cursor c WHERE c.lane = m.lane)`
)

// The statements read their tables from end to end: no index fits all properties, and one for each would make every event dearer to record.
func searchStatement(parts ...string) string {
	match := seek.Match("r.id", "r.event_metadata")
	selects := make([]string, len(parts))
	for n, part := range parts {
		selects[n] = "SELECT " + searchColumns + ", " + match + " AS by, " + part
	}
	return searchedWith + strings.Join(selects, "\n\tUNION ALL\n\t") + searchEnd
}

// searchWaiting searches what waits or is dead, and rows of days without a partition.
func searchWaiting() string {
	return searchStatement(
		`CASE WHEN r.retry_count > 0 THEN '`+outboxdb.StatusFailed+`' ELSE '`+outboxdb.StatusNew+`' END AS status
		FROM {schema}.outbox_held r`,
		`'`+outboxdb.StatusDead+`'
		FROM {schema}.outbox_dead r`,
		`NULL FROM {schema}.outbox_default r`,
		`'`+outboxdb.StatusSent+`'
		FROM {schema}.outbox_sent_default r`)
}

// searchSpan searches what was recorded from $7 to $8, and what was published then out of its turn.
func searchSpan() string {
	return searchStatement(
		`NULL AS status FROM {schema}.outbox r WHERE r.created_at >= $7::timestamptz AND r.created_at < $8::timestamptz`,
		`'`+outboxdb.StatusSent+`'
		FROM {schema}.outbox_sent r WHERE r.sent_at >= $7::timestamptz AND r.sent_at < $8::timestamptz`)
}

// daysOfLog lists the days that have a partition, the latest first.
const daysOfLog = `
SELECT DISTINCT to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC' AS day
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent IN ('{schema}.outbox'::regclass, '{schema}.outbox_sent'::regclass) AND c.relname ~ '_[0-9]{8}$' ORDER BY day DESC`

// firstSpan is how much of the past is searched first. Each further span is twice as long, and ends with its day: each reads the partition of its day, and
// only compares the rows of the span.
const firstSpan = 15 * time.Minute

// search is a search for events. Its arguments are those of the statements.
type search struct {
	box   *outboxdb.Handle
	args  []any
	limit int
	found Matches
}

// run searches until it has more events than the limit, or until within is over, and sets Back. The first span is searched to its end, however long it
// takes, so that a caller who goes on from Back comes to the end of the search.
func (s *search) run(ctx context.Context, before time.Time, within time.Duration) error {
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if before.IsZero() {
		if err := s.add(ctx, searchWaiting(), s.args); err != nil {
			return err
		}
	}
	days, err := pgsql.Collect(s.box.AdHoc().Query(ctx, s.box.DB, daysOfLog), func(scan pgsql.Scan, day *time.Time) error { return scan(day) })
	if err != nil {
		return err
	}
	for _, part := range spans(days, before, time.Now()) {
		patience := ctx
		if !s.found.Back.IsZero() {
			patience = bounded
		}
		if len(s.found.List) > s.limit || patience.Err() != nil {
			return ctx.Err()
		}
		if err := s.add(patience, searchSpan(), append(s.args, part.from, part.to)); err != nil {
			if ctx.Err() == nil && errors.Is(patience.Err(), context.DeadlineExceeded) {
				return nil
			}
			return err
		}
		s.found.Back = part.from
	}
	s.found.Back = time.Time{}
	return nil
}

// span is the time from from to to, without to.
type span struct{ from, to time.Time }

// spans divides the days before a time (zero: all) into spans, the latest first. The first of them contains the days of the future: their partitions
// are made ahead, and a search that has come through them alone has come nowhere.
func spans(days []time.Time, before, now time.Time) (list []span) {
	if len(days) == 0 {
		return nil
	}
	end := days[0].UTC().Add(day)
	if !before.IsZero() && before.Before(end) {
		end = before.UTC()
	}
	length := firstSpan
	for _, start := range days {
		start = start.UTC()
		if start.After(now) {
			continue
		}
		if last := start.Add(day); len(list) > 0 && last.Before(end) {
			end = last
		}
		for end.After(start) {
			latest := end
			if now.Before(latest) {
				latest = now.UTC()
			}
			from := latest.Add(-length).Truncate(time.Minute)
			if from.Before(start) {
				from = start
			}
			list = append(list, span{from, end})
			end, length = from, 2*length
		}
	}
	return list
}

// add adds the events that one statement finds.
func (s *search) add(ctx context.Context, statement string, args []any) error {
	list, err := pgsql.Collect(s.box.AdHoc().Query(ctx, s.box.DB, statement, args...), func(scan pgsql.Scan, m *Match) error {
		return scan(&m.ID, &m.Type, &m.Topic, &m.Tenant, &m.Source, &m.AggregateType, &m.AggregateID, &m.Key, &m.CreatedAt, &m.Status, &m.By)
	})
	s.found.List = append(s.found.List, list...)
	return err
}
