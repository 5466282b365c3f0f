package state

import (
	"context"
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
	// Back is the earliest day that was searched. Events that were recorded on earlier days, and are published, were not looked at. Zero: all days were
	// searched.
	Back time.Time
}

const (
	searchColumns = `r.id, r.event_type, r.topic, r.tenant_id, r.source, r.aggregate_type, r.aggregate_id, r.ordering_key, r.created_at, r.event_metadata`
	searchedWith  = `SELECT m.id::text, m.event_type, m.topic, m.tenant_id, m.source, m.aggregate_type, m.aggregate_id, coalesce(m.ordering_key, ''),
	m.created_at, m.status, m.by FROM (`
	searchEnd = `) m WHERE m.by IS NOT NULL ORDER BY m.created_at DESC, m.id DESC LIMIT $6::int`

	// ofLog is the status of a row r of the log.
	ofLog = `(SELECT CASE WHEN r.seq <= c.sent OR r.seq <@ c.ahead THEN '` + outboxdb.StatusSent + `' ELSE '` + outboxdb.StatusNew + `' END
		FROM {schema}.outbox_cursor c WHERE c.lane = r.lane)`
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
		ofLog+` FROM {schema}.outbox_default r`,
		`'`+outboxdb.StatusSent+`'
		FROM {schema}.outbox_sent_default r`)
}

// searchDay searches what was recorded from $7 to $8, and what was published then out of its turn.
func searchDay() string {
	return searchStatement(
		ofLog+` AS status FROM {schema}.outbox r WHERE r.created_at >= $7::timestamptz AND r.created_at < $8::timestamptz`,
		`'`+outboxdb.StatusSent+`'
		FROM {schema}.outbox_sent r WHERE r.sent_at >= $7::timestamptz AND r.sent_at < $8::timestamptz`)
}

// daysOfLog lists the days that have a partition, the latest first.
const daysOfLog = `
SELECT DISTINCT to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC' AS day
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent IN ('{schema}.outbox'::regclass, '{schema}.outbox_sent'::regclass) AND c.relname ~ '_[0-9]{8}$' ORDER BY day DESC`

// search is a search for events. Its arguments are those of the statements.
type search struct {
	box   *outboxdb.Handle
	args  []any
	limit int
	found Matches
}

// run searches until it has more events than the limit, and sets Back.
func (s *search) run(ctx context.Context, before time.Time) error {
	// If the time is over at once, not even today was searched.
	s.found.Back = before
	if before.IsZero() {
		s.found.Back = time.Now().UTC().Truncate(day).Add(day)
		if err := s.add(ctx, searchWaiting(), s.args); err != nil {
			return err
		}
	}
	days, err := pgsql.Collect(s.box.AdHoc().Query(ctx, s.box.DB, daysOfLog), func(scan pgsql.Scan, day *time.Time) error { return scan(day) })
	if err != nil {
		return err
	}
	for _, from := range days {
		if from = from.UTC(); !before.IsZero() && !from.Before(before) {
			continue
		}
		if len(s.found.List) > s.limit {
			return nil
		}
		if err := s.add(ctx, searchDay(), append(s.args, from, from.Add(day))); err != nil {
			return err
		}
		s.found.Back = from
	}
	s.found.Back = time.Time{}
	return nil
}

// add adds the events that one statement finds.
func (s *search) add(ctx context.Context, statement string, args []any) error {
	list, err := pgsql.Collect(s.box.AdHoc().Query(ctx, s.box.DB, statement, args...), func(scan pgsql.Scan, m *Match) error {
		return scan(&m.ID, &m.Type, &m.Topic, &m.Tenant, &m.Source, &m.AggregateType, &m.AggregateID, &m.Key, &m.CreatedAt, &m.Status, &m.By)
	})
	s.found.List = append(s.found.List, list...)
	return err
}
