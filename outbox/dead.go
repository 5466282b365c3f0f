package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// ErrNotDead means that there is no dead letter with that id: there never was one, or somebody was faster.
var ErrNotDead = errors.New("outbox: no dead letter with this id")

// ErrSeveralDead means that several dead letters have that id, because the producer gave it to several events
// ([event.WithID]). [DeadFilter] with the ID and, for instance, the tenant tells them apart.
var ErrSeveralDead = errors.New("outbox: several dead letters have this id: select them with a DeadFilter")

// DeadLetter is a row that was given up.
type DeadLetter struct {
	Row
	// DiedAt is when it was given up, by the clock of the database.
	DiedAt time.Time
	// Error is the last refusal, at most 2 KiB of it, in valid UTF-8 and without NUL; beyond that it may be any text.
	Error string
	// Holds says that the later events of its key wait until it is replayed or discarded. They do not wait for a letter without a key, for an event that
	// expired, or on a topic whose keys go on after dead letters (projector.Config.ContinueAfterDead).
	Holds bool
}

const (
	deadColumns = rowColumns + `, died_at, coalesce(error_message, ''), ` + holdsKey

	// holdsKey says that a dead letter d is what its key waits for.
	holdsKey = `EXISTS (SELECT FROM {schema}.outbox_block b
		WHERE b.lane = d.lane AND b.ordering_key = d.ordering_key AND b.state = 'dead' AND b.head_seq = d.seq)`

	listDead = `
SELECT ` + deadColumns + ` FROM (SELECT {columns but payload}, NULL::bytea AS payload, died_at, error_message FROM {schema}.outbox_dead) d
WHERE %s ORDER BY d.died_at, d.seq LIMIT %s`
	showDead  = `SELECT ` + deadColumns + ` FROM {schema}.outbox_dead d WHERE %s`
	countDead = `SELECT count(*) FROM {schema}.outbox_dead d WHERE %s`
)

// defaultPage is the size of a page whose limit is not given.
const defaultPage = 100

// Dead lists the dead letters that the filter selects, oldest first, without their payloads. A page has at most limit of
// them (0: 100) and begins after the last one of the page before (nil: from the start). Only its DiedAt and Sequence count.
func (s *Store) Dead(ctx context.Context, filter DeadFilter, after *DeadLetter, limit int) ([]DeadLetter, error) {
	if err := filter.Validate(); err != nil {
		return nil, err
	}
	statement, args := deadPage(filter, after, limit)
	out, err := pgsql.Collect(s.adHoc().Query(ctx, s.db, statement, args...), scanDead)
	return out, wrap("list dead letters", err)
}

func deadPage(filter DeadFilter, after *DeadLetter, limit int) (statement string, args []any) {
	if limit <= 0 {
		limit = defaultPage
	}
	w := filter.where()
	if after != nil {
		w.Add("(d.died_at, d.seq) > (%s::timestamptz, %s::bigint)", after.DiedAt, after.Sequence)
	}
	bound := w.Arg(limit)
	return fmt.Sprintf(listDead, w, bound), w.Args
}

// DeadLetter returns the dead letter with this id and its payload, [ErrNotDead] if there is none, and [ErrSeveralDead] if
// there are more.
func (s *Store) DeadLetter(ctx context.Context, id string, opts ...DeadOption) (DeadLetter, error) {
	var d DeadLetter
	parsed, err := uuid.Parse(id)
	if err != nil {
		return d, fmt.Errorf("outbox: show %q: %w", id, ErrNotDead)
	}
	w := deadWithID(parsed, opts)
	letters, err := pgsql.Collect(s.adHoc().Query(ctx, s.db, fmt.Sprintf(showDead, w), w.Args...), scanDead)
	switch {
	case err != nil:
		return d, wrap("show a dead letter", err)
	case len(letters) == 0:
		return d, fmt.Errorf("outbox: show %s: %w", id, ErrNotDead)
	case len(letters) > 1:
		return d, fmt.Errorf("outbox: show %s: %w", id, ErrSeveralDead)
	}
	return letters[0], nil
}

func scanDead(scan pgsql.Scan, d *DeadLetter) error {
	return scanRow(scan, &d.Row, &d.DiedAt, &d.Error, &d.Holds)
}

// CountDead counts the dead letters that the filter selects.
func (s *Store) CountDead(ctx context.Context, filter DeadFilter) (int64, error) {
	if err := filter.Validate(); err != nil {
		return 0, err
	}
	w := filter.where()
	var n int64
	err := s.adHoc().QueryRow(ctx, s.db, fmt.Sprintf(countDead, w), w.Args, &n)
	return n, wrap("count dead letters", err)
}

// adHoc runs what operators ask for: planned anew each time, because the best index depends on which tenant or topic it
// is, and because tables that are nearly empty most of the time are full just then.
func (s *Store) adHoc() *pgsql.Runner { return s.sql.AdHoc() }
