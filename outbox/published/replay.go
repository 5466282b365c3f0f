// Package published is for events that an outbox has published and keeps: it hands them over once more, to rebuild a read model.
//
//	done, err := store.Published().Replay(ctx, published.Filter{Topic: "order"}, "order.rebuild", broker.Publish, nil)
//
// Read first: replay.go:Events.Replay, then history.go:Events.History.
package published

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

const (
	// MetadataOriginalTopic is the metadata key under which a replayed event has the topic on which it was first published.
	MetadataOriginalTopic = "original_topic"
	// MetadataReplay is the metadata key under which a replayed event has an id of the call of [Events.Replay]. A broker that recognizes copies by their
	// content, as NATS does, would otherwise drop the events of a second replay as copies of the first.
	MetadataReplay = "replay"
)

// ErrLiveTopic means that events were to be replayed on a topic on which this outbox publishes, see [Events.Replay].
var ErrLiveTopic = errors.New("outbox: events are published on this topic: replay them on one of its own, as order.rebuild")

// errPooled: the cursor belongs to its session, and a pooler may give the next transaction another one.
var errPooled = errors.New("a cursor does not survive in a transaction-mode pooler: use a Store without Config.Pooler, on a direct connection")

// Replay has the settings of a replay.
type Replay struct {
	// After is the sequence to continue after: [Replayed].Last of a call that failed. Default: 0, from the start.
	After int64
	// BatchSize is the number of events that are handed over in one call. Default: 500.
	BatchSize int
	// DryRun counts what the filter selects and hands nothing over. Default: false.
	DryRun bool
	// Progress is called after each batch, with the figures so far. Default: none.
	Progress func(Replayed)
}

// Replayed is the progress of a replay.
type Replayed struct {
	// Events is the number of events that were handed over, or would be in a dry run.
	Events int64
	// Last is the sequence of the last of these events.
	Last int64
}

// Events are the published events of an outbox. It is safe for concurrent use.
type Events struct{ box *outboxdb.Handle }

// New is for package outbox: see outbox.Store.Published.
func New(box *outboxdb.Handle) *Events { return &Events{box} }

// Replay hands published events over once more, in the order of their sequence, to rebuild a read model: to a handler
// of this process (messaging.Direct(h).Publish) or to a topic of its own (the Publish of a broker). Nothing in the outbox
// changes. Ids and sequences stay; the events get the given topic, and their metadata names their own one under [MetadataOriginalTopic]
// and the call under [MetadataReplay].
//
// A topic on which this outbox publishes is refused with [ErrLiveTopic], because consumers that have handled the events would get them again. Before
// anything is handed over, the topic is compared with the first events of each of the last 31 days, and before each batch with the batch.
//
// The call selects among the events that are published when it begins. It returns how far it got, also beside an error. To go on there, call it again
// with [Replay.After]: the batch that failed comes again.
//
// The server sorts the rows once, and needs about 50 bytes of temporary disk for each. After that no snapshot is held, so VACUUM works however long the
// replay takes. It uses one connection of the pool. The rows are sorted again if somebody rewrites their tables meanwhile, as CLUSTER, VACUUM FULL and
// pg_repack do. The call fails if the retention drops rows before they were handed over. It does not work through a transaction-mode pooler.
func (e *Events) Replay(
	ctx context.Context, filter Filter, topic string, to func(context.Context, []event.Envelope) error, replay *Replay,
) (Replayed, error) {
	if replay == nil {
		replay = &Replay{}
	}
	done := Replayed{Last: replay.After}
	err := errors.Join(filter.Validate(), event.ValidateIdentifier("topic", topic))
	switch {
	case err != nil:
	case replay.DryRun:
		err = e.box.AdHoc().QueryRow(ctx, e.box.DB, fmt.Sprintf(countSent, filter.where(replay.After)), filter.where(replay.After).Args, &done.Events)
	case topic == "":
		err = errors.New("topic is empty: give one of its own, as order.rebuild")
	case e.box.Pooler:
		err = errPooled
	default:
		err = e.replay(ctx, filter, topic, to, replay, &done)
	}
	return done, outboxdb.Wrap("replay published events", err)
}

const (
	countSent = `SELECT count(*) FROM {schema}.outbox_published s WHERE %s`

	// isLive reads only a part of each day. For a topic that is not live it would otherwise read everything
	// that is kept.
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

func (e *Events) replay(
	ctx context.Context, filter Filter, topic string, to func(context.Context, []event.Envelope) error, replay *Replay, done *Replayed,
) error {
	run := e.box.AdHoc()
	var live bool
	if err := run.QueryRow(ctx, e.box.DB, isLive, []any{topic}, &live); err != nil {
		return err
	}
	if live {
		return ErrLiveTopic
	}
	call := uuid.NewString()
	return e.each(ctx, filter.where, replay.After, replay.BatchSize, func(rows []outboxdb.Row) error {
		if slices.ContainsFunc(rows, func(r outboxdb.Row) bool { return r.Topic == topic }) {
			return ErrLiveTopic
		}
		if err := to(ctx, readdressed(rows, topic, call)); err != nil {
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

// sentBatch is the default of Replay.BatchSize.
const sentBatch = 500

// each calls fn with the rows, size of them at once, in the order of their sequence. If rows have other places than before, it sorts the remaining rows
// again. It fails if rows are gone.
func (e *Events) each(ctx context.Context, filter func(after int64) *pgsql.Where, after int64, size int, fn func([]outboxdb.Row) error) error {
	conn, err := e.box.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if size <= 0 {
		size = sentBatch
	}
	var owed []int64
	for {
		moved, last, err := e.from(ctx, conn, filter(after), owed, size, fn)
		if err != nil || len(moved) == 0 {
			return err
		}
		owed, after = moved, max(after, last)
	}
}

// from sorts the rows and calls fn with them, until it finds that rows have moved. moved are the numbers of their batch, last is the last number that
// fn has seen. The numbers that are owed have to come first: the caller saw them in a batch that had moved.
func (e *Events) from(
	ctx context.Context, conn bun.Conn, w *pgsql.Where, owed []int64, size int, fn func([]outboxdb.Row) error,
) (moved []int64, last int64, err error) {
	if err := conn.RunInTx(ctx, &sql.TxOptions{ReadOnly: true}, func(ctx context.Context, tx bun.Tx) error {
		_, err := e.box.AdHoc().Exec(ctx, tx, fmt.Sprintf(declareSent, w), w.Args...)
		return err
	}); err != nil {
		return nil, 0, err
	}
	// The connection goes back to the pool, and an open cursor would keep its disk space there. So it is
	// closed even if ctx has ended.
	defer func() { _, _ = e.box.AdHoc().Exec(context.WithoutCancel(ctx), conn, closeSent) }()
	for {
		rows, numbers, err := e.next(ctx, conn, size)
		if err != nil {
			return nil, last, err
		}
		if owed, err = stillOwed(owed, numbers); err != nil || len(numbers) == 0 {
			return nil, last, err
		}
		// Some rows of the batch have moved. fn gets a batch as a whole or not at all, so the order stays.
		if len(rows) < len(numbers) {
			return numbers, last, nil
		}
		if err := fn(rows); err != nil {
			return nil, last, err
		}
		last = rows[len(rows)-1].Sequence
	}
}

// stillOwed returns the owed numbers beyond the batch numbers. It fails if the batch lacks one of the others. Both lists are sorted.
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
		return nil, fmt.Errorf("%d rows no longer exist: their partition was dropped", gone)
	}
	return owed[due:], nil
}

// next reads the next rows of the cursor. numbers are the rows that the cursor names, rows the ones that are still in their places: CLUSTER, VACUUM
// FULL and pg_repack move rows.
func (e *Events) next(ctx context.Context, conn bun.Conn, size int) (rows []outboxdb.Row, numbers []int64, err error) {
	children, places, numbers, err := scanPlaces(e.box.AdHoc().Query(ctx, conn, fmt.Sprintf(fetchSent, size)))
	if err != nil || len(numbers) == 0 {
		return nil, nil, err
	}
	if rows, err = outboxdb.ScanRows(e.box.AdHoc().Query(ctx, conn, readSent, children, places)); err != nil {
		return nil, nil, err
	}
	// After a move another row may be in a place, so the sequences are compared as well.
	rows = slices.DeleteFunc(rows, func(r outboxdb.Row) bool {
		_, is := slices.BinarySearch(numbers, r.Sequence)
		return !is
	})
	slices.SortFunc(rows, func(a, b outboxdb.Row) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return rows, numbers, nil
}

// scanPlaces reads a batch of the cursor: the table and the place (ctid) of each row, and its sequence.
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

// readdressed returns the events of the rows with another topic. How and when they were first to be
// delivered is left out.
func readdressed(rows []outboxdb.Row, topic, call string) []event.Envelope {
	out := make([]event.Envelope, len(rows))
	for i := range rows {
		e := rows[i].Envelope
		e.Metadata = maps.Clone(e.Metadata)
		if e.Metadata == nil {
			e.Metadata = event.Metadata{}
		}
		e.Metadata[MetadataOriginalTopic], e.Metadata[MetadataReplay] = e.Topic, call
		e.Topic, e.Delivery = topic, event.Delivery{}
		out[i] = e
	}
	return out
}
