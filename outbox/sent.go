package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// SentFilter selects published events: those that agree with every field that is set. The zero filter selects all that
// are kept. Partitions of days after SentBefore are not read.
type SentFilter struct {
	TenantID, Topic, Type      string
	AggregateType, AggregateID string
	// SentFrom and SentBefore bound the time of publication; the first counts as within, the second does not.
	SentFrom, SentBefore time.Time
}

// Validate names every field that cannot be used.
func (f SentFilter) Validate() error {
	var errs []error
	for _, c := range f.texts() {
		errs = append(errs, event.ValidateIdentifier("outbox: SentFilter."+c.field, c.value))
	}
	if !f.SentFrom.IsZero() && !f.SentBefore.IsZero() && !f.SentFrom.Before(f.SentBefore) {
		errs = append(errs, fmt.Errorf("outbox: SentFilter.SentFrom %s is not before SentBefore %s", f.SentFrom, f.SentBefore))
	}
	return errors.Join(errs...)
}

type filterText struct{ field, column, value string }

func (f SentFilter) texts() []filterText {
	return []filterText{
		{"TenantID", "tenant_id", f.TenantID}, {"Topic", "topic", f.Topic}, {"Type", "event_type", f.Type},
		{"AggregateType", "aggregate_type", f.AggregateType}, {"AggregateID", "aggregate_id", f.AggregateID},
	}
}

// where is the filter as conditions on outbox_published s.
func (f SentFilter) where(after int64) *pgsql.Where {
	w := &pgsql.Where{}
	for _, c := range f.texts() {
		if c.value != "" {
			w.Add("s."+c.column+" = %s::text", c.value)
		}
	}
	if !f.SentFrom.IsZero() {
		w.Add("s.sent_at >= %s::timestamptz", f.SentFrom)
	}
	if !f.SentBefore.IsZero() {
		w.Add("s.within < %s::timestamptz", f.SentBefore) // for the planner: nothing is sent before it is recorded
		w.Add("s.sent_at < %s::timestamptz", f.SentBefore)
	}
	if after > 0 {
		w.Add("s.seq > %s::bigint", after)
	}
	return w
}

// MetadataOriginalTopic is where a replayed event carries the topic on which it was published.
const MetadataOriginalTopic = "original_topic"

// ErrLiveTopic means that events were to be replayed on a topic on which this outbox publishes, see [Store.ReplaySent].
var ErrLiveTopic = errors.New("outbox: events are published on this topic: replay them on one of its own, as order.rebuild")

var errPooled = errors.New("a cursor does not survive in a transaction-mode pooler: use a Store without Config.Pooler, on a direct connection")

// SentReplay says how published events are replayed.
type SentReplay struct {
	// After is the sequence after which to go on: [Replayed].Last of a call that failed. Default: 0, from the start.
	After int64
	// BatchSize is how many events are handed over at once. Default: 500.
	BatchSize int
	// DryRun counts what the filter selects and hands nothing over. Default: false.
	DryRun bool
	// Progress is called after each batch with what was replayed so far. Default: none.
	Progress func(Replayed)
}

// Replayed is how far a replay got.
type Replayed struct {
	// Events that were handed over, or would be.
	Events int64
	// Last is the sequence of the last one.
	Last int64
}

// ReplaySent hands published events over once more, in the order of their sequence, to rebuild a read model: to a handler
// of this process (messaging.Direct(h).Publish) or to a topic of its own (the Publish of a broker). Nothing in the outbox
// changes. Ids and sequences stay; each event says that it is of the given topic, and names its own in its metadata under
// [MetadataOriginalTopic]. A topic on which this outbox publishes is refused with [ErrLiveTopic], because consumers that have
// handled the events would get them again: one of the events at the beginning of each of the last 31 days, before anything
// is handed over, and in any case the topic of an event that would be replayed, before its batch is.
//
// What is selected is what is published when the call begins. It returns how far it got, also beside an error; called
// again with SentReplay.After it goes on there, and a batch that was being handed over comes again.
//
// The rows are sorted once, by the server, which needs about 50 bytes of temporary disk for each. That done, no snapshot
// is held however long the replay takes, so it keeps VACUUM from nothing, and uses one connection of the pool. They are sorted again if somebody
// writes their tables anew meanwhile, as CLUSTER, VACUUM FULL and pg_repack do. It errs if
// the retention drops rows before they were handed over. It does not work through a transaction-mode pooler.
func (s *Store) ReplaySent(
	ctx context.Context, filter SentFilter, topic string, to func(context.Context, []event.Envelope) error, replay *SentReplay,
) (Replayed, error) {
	if replay == nil {
		replay = &SentReplay{}
	}
	done := Replayed{Last: replay.After}
	err := errors.Join(filter.Validate(), event.ValidateIdentifier("topic", topic))
	switch {
	case err != nil:
	case replay.DryRun:
		err = s.adHoc().QueryRow(ctx, s.db, fmt.Sprintf(countSent, filter.where(replay.After)), filter.where(replay.After).Args, &done.Events)
	case topic == "":
		err = errors.New("topic is empty: give one of its own, as order.rebuild")
	case s.cfg.Pooler:
		err = errPooled
	default:
		err = s.replaySent(ctx, filter, topic, to, replay, &done)
	}
	return done, outboxdb.Wrap("replay published events", err)
}

const (
	countSent = `SELECT count(*) FROM {schema}.outbox_published s WHERE %s`

	// isLive reads a part of each day. Of a topic that is not live it would else read all that is kept.
	isLive = `
SELECT EXISTS (
	SELECT FROM generate_series(0, 31) back CROSS JOIN LATERAL (
		SELECT s.topic FROM {schema}.outbox_published s
		WHERE s.within >= date_trunc('day', now(), 'UTC') - back * interval '24 hours'
			AND s.within < date_trunc('day', now(), 'UTC') - (back - 1) * interval '24 hours' LIMIT 10000) day
	WHERE day.topic = $1)`

	// declareSent sorts the places of the rows, not the rows. WITH HOLD keeps the result after the COMMIT, which ends the
	// snapshot. Published rows are never updated, so their places are theirs until the partition is dropped, or until somebody writes it anew.
	declareSent = `
DECLARE oncebox_replay NO SCROLL CURSOR WITH HOLD FOR
SELECT s.child::bigint, s.place::text, s.seq FROM {schema}.outbox_published s WHERE %s ORDER BY s.seq`
	fetchSent = `FETCH %d FROM oncebox_replay`
	closeSent = `CLOSE oncebox_replay`

	readSent = `
SELECT ` + outboxdb.RowColumns + ` FROM unnest($1::bigint[], $2::text[]) a(child, place) JOIN (
	SELECT o.tableoid AS child, o.ctid AS at, {columns} FROM {schema}.outbox o
	UNION ALL SELECT s.tableoid, s.ctid, {columns} FROM {schema}.outbox_sent s) r ON r.child = a.child::oid AND r.at = a.place::tid`
)

func (s *Store) replaySent(
	ctx context.Context, filter SentFilter, topic string, to func(context.Context, []event.Envelope) error, replay *SentReplay, done *Replayed,
) error {
	run := s.adHoc()
	var live bool
	if err := run.QueryRow(ctx, s.db, isLive, []any{topic}, &live); err != nil {
		return err
	}
	if live {
		return ErrLiveTopic
	}
	return s.eachSent(ctx, filter.where, replay.After, replay.BatchSize, func(rows []Row) error {
		if slices.ContainsFunc(rows, func(r Row) bool { return r.Topic == topic }) {
			return ErrLiveTopic
		}
		if err := to(ctx, readdressed(rows, topic)); err != nil {
			return fmt.Errorf("after %d: %w", done.Last, err)
		}
		done.Events += int64(len(rows))
		done.Last = rows[len(rows)-1].Sequence
		if replay.Progress != nil {
			replay.Progress(*done)
		}
		return nil
	})
}

// sentBatch is how many rows a replay hands over at once by default.
const sentBatch = 500

// eachSent calls fn with the rows, size of them at once, in the order of their sequence. Where rows have other places than before it sorts again those
// that were not handed over. It errs if they are gone.
func (s *Store) eachSent(ctx context.Context, filter func(after int64) *pgsql.Where, after int64, size int, fn func([]Row) error) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if size <= 0 {
		size = sentBatch
	}
	var owed []int64
	for {
		moved, last, err := s.sentFrom(ctx, conn, filter(after), owed, size, fn)
		if err != nil || len(moved) == 0 {
			return err
		}
		owed, after = moved, max(after, last)
	}
}

// sentFrom sorts the rows and calls fn with them until some have other places. It returns the numbers of these, and the last one that was handed over.
// The rows that are owed are to be among the first.
func (s *Store) sentFrom(
	ctx context.Context, conn bun.Conn, w *pgsql.Where, owed []int64, size int, fn func([]Row) error,
) (moved []int64, last int64, err error) {
	if err := conn.RunInTx(ctx, &sql.TxOptions{ReadOnly: true}, func(ctx context.Context, tx bun.Tx) error {
		_, err := s.adHoc().Exec(ctx, tx, fmt.Sprintf(declareSent, w), w.Args...)
		return err
	}); err != nil {
		return nil, 0, err
	}
	defer func() { _, _ = s.adHoc().Exec(context.WithoutCancel(ctx), conn, closeSent) }()
	for {
		rows, numbers, err := s.nextSent(ctx, conn, size)
		if err != nil {
			return nil, last, err
		}
		if owed, err = stillOwed(owed, numbers); err != nil || len(numbers) == 0 {
			return nil, last, err
		}
		if len(rows) < len(numbers) {
			return numbers, last, nil
		}
		if err := fn(rows); err != nil {
			return nil, last, err
		}
		last = rows[len(rows)-1].Sequence
	}
}

// stillOwed returns those of the owed numbers that come after the others, and errs if one is missing among these. All are sorted.
func stillOwed(owed, numbers []int64) ([]int64, error) {
	due := len(owed)
	if len(numbers) > 0 {
		due, _ = slices.BinarySearch(owed, numbers[len(numbers)-1]+1)
	}
	gone := 0
	for _, seq := range owed[:due] {
		if _, found := slices.BinarySearch(numbers, seq); !found {
			gone++
		}
	}
	if gone > 0 {
		return nil, fmt.Errorf("%d rows are not there any more: their partition was dropped", gone)
	}
	return owed[due:], nil
}

// nextSent reads the next rows of the cursor. numbers are those that it names; rows are those of them that are where it says: CLUSTER, VACUUM FULL
// and pg_repack give their places to others.
func (s *Store) nextSent(ctx context.Context, conn bun.Conn, size int) (rows []Row, numbers []int64, err error) {
	children, places, numbers, err := scanPlaces(s.adHoc().Query(ctx, conn, fmt.Sprintf(fetchSent, size)))
	if err != nil || len(numbers) == 0 {
		return nil, nil, err
	}
	if rows, err = outboxdb.ScanRows(s.adHoc().Query(ctx, conn, readSent, children, places)); err != nil {
		return nil, nil, err
	}
	rows = slices.DeleteFunc(rows, func(r Row) bool {
		_, is := slices.BinarySearch(numbers, r.Sequence)
		return !is
	})
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return rows, numbers, nil
}

func scanPlaces(rows *pgsql.Rows) (children []int64, places []string, numbers []int64, err error) {
	err = pgsql.Each(rows, func(scan pgsql.Scan) error {
		var child, number int64
		var place string
		if err := scan(&child, &place, &number); err != nil {
			return err
		}
		children, places, numbers = append(children, child), append(places, place), append(numbers, number)
		return nil
	})
	return children, places, numbers, err
}

// readdressed are the events of the rows as events of another topic, to be delivered without regard to how and when they
// were to be delivered the first time.
func readdressed(rows []Row, topic string) []event.Envelope {
	out := make([]event.Envelope, len(rows))
	for i := range rows {
		e := rows[i].Envelope
		e.Metadata = maps.Clone(e.Metadata)
		if e.Metadata == nil {
			e.Metadata = event.Metadata{}
		}
		e.Metadata[MetadataOriginalTopic] = e.Topic
		e.Topic, e.Delivery = topic, event.Delivery{}
		out[i] = e
	}
	return out
}
