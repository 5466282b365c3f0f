package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pace"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Bulk says how many dead letters are treated at once.
type Bulk struct {
	// BatchSize is how many dead letters are moved per transaction, in which their lanes stand still. Default: 500.
	BatchSize int
	// DryRun counts what the filter selects and changes nothing. Default: false.
	DryRun bool
	// Rate is how many dead letters are moved per second at most, so that the service that publishes or handles them is not flooded. The call returns
	// only when the next one may begin. Default: 0, no bound.
	Rate float64
	// Progress is called after each batch with the number of dead letters moved so far. Default: none.
	Progress func(done int64)
}

const defaultBulk = 500

// Replay publishes a dead letter after all. It keeps id and sequence and gets all its attempts back; it leaves before
// whatever waits behind it under its key, and consumers that have handled it already see a duplicate. It returns
// [ErrNotDead] if there is none with this id, and [ErrSeveralDead], having done nothing, if there are more.
//
// What has expired dies again. What is replayed under a key that another dead letter blocks waits for that one.
func (s *Store) Replay(ctx context.Context, id string, by By, opts ...DeadOption) error {
	return s.actOnOne(ctx, deed{action: ActionReplay, move: replayDead, by: by}, id, opts)
}

// Discard deletes a dead letter for good; what waits behind it is published. by must give a reason. It returns
// [ErrNotDead] if there is none with this id, and [ErrSeveralDead], having done nothing, if there are more.
func (s *Store) Discard(ctx context.Context, id string, by By, opts ...DeadOption) error {
	return s.actOnOne(ctx, deed{action: ActionDiscard, move: discardDead, by: by}, id, opts)
}

// ReplayAll replays the dead letters that the filter selects and that are dead when it begins, per key in the order of
// their sequence. It returns how many it moved, also beside an error: each batch is a transaction of its own, and the
// batches before stay. See [Store.Replay].
func (s *Store) ReplayAll(ctx context.Context, filter DeadFilter, by By, bulk *Bulk) (int64, error) {
	return s.actOnAll(ctx, deed{action: ActionReplay, move: replayDead, by: by}, filter, bulk)
}

// DiscardAll discards the dead letters that the filter selects and that are dead when it begins. by must give a reason.
// It returns how many it deleted, also beside an error, as [Store.ReplayAll] does.
func (s *Store) DiscardAll(ctx context.Context, filter DeadFilter, by By, bulk *Bulk) (int64, error) {
	return s.actOnAll(ctx, deed{action: ActionDiscard, move: discardDead, by: by}, filter, bulk)
}

// deed is one kind of thing to do with dead letters.
type deed struct {
	action, move string
	by           By
	alone        bool   // it is for one letter: if there are several, it does nothing
	payload      []byte // the new one; nil: that which is stored
}

const (
	// pickDead chooses a batch in the order of the lanes and, within a lane and thus within a key, of the sequence.
	pickDead = `
SELECT d.lane, d.seq, coalesce(d.ordering_key, '') FROM {schema}.outbox_dead d
WHERE %s ORDER BY d.lane, d.seq LIMIT %s`

	// touchLanes locks the lanes, in their order as everybody else does, and tells their owners that the blocks they know
	// are not those of the database any more. Until the transaction ends, no other one changes the blocks, held or dead
	// rows of these lanes.
	touchLanes = `
WITH mine AS MATERIALIZED (
	SELECT lane FROM {schema}.outbox_lane WHERE lane = ANY ($1::smallint[]) ORDER BY lane FOR NO KEY UPDATE)
UPDATE {schema}.outbox_lane l SET change = l.change + 1 FROM mine WHERE l.lane = mine.lane`

	takeDead = `
WITH ` + deleteDead + `,
noted AS (` + noteDeed + `)`

	deleteDead = `d AS (
	DELETE FROM {schema}.outbox_dead x USING unnest($1::smallint[], $2::bigint[]) a(lane, seq)
	WHERE x.lane = a.lane AND x.seq = a.seq RETURNING x.*)`

	// replayDead puts dead letters among the held rows, where wakeHeads makes the first one of each key due.
	//
	// A block whose head is another dead letter stays, because nobody has decided about that letter yet. A held row was the first
	// of its key until now; if it comes after a replayed one, it waits again. If it stayed due, it would be read and passed
	// over with each look.
	replayDead = takeDead + `,
keys AS MATERIALIZED (
	SELECT lane, ordering_key, min(seq) AS first FROM d WHERE ordering_key IS NOT NULL GROUP BY lane, ordering_key),
block AS (
	INSERT INTO {schema}.outbox_block AS b (lane, ordering_key, head_seq, state)
	SELECT lane, ordering_key, first, 'draining' FROM keys
	ON CONFLICT (lane, ordering_key) DO UPDATE
	SET state = 'draining', head_seq = least(b.head_seq, excluded.head_seq)
	WHERE b.state <> 'dead' OR NOT EXISTS (SELECT FROM {schema}.outbox_dead o
		WHERE o.lane = b.lane AND o.seq = b.head_seq AND o.seq <> ALL ($2::bigint[]))),
behind AS (
	UPDATE {schema}.outbox_held h SET retry_after = 'infinity'
	FROM keys k CROSS JOIN LATERAL (` + headOfKey + `) f
	WHERE f.lane = k.lane AND f.ordering_key = k.ordering_key AND f.seq > k.first AND f.retry_after < 'infinity'
		AND h.lane = f.lane AND h.seq = f.seq),
held AS (
	INSERT INTO {schema}.outbox_held ({columns}, retry_after)
	SELECT {columns anew}, CASE WHEN ordering_key IS NULL THEN greatest(clock_timestamp(), not_before) ELSE 'infinity' END FROM d)
SELECT count(*) FROM d`

	// discardDead deletes dead letters. A key that one of them blocked drains: wakeHeads makes its next row due, and the
	// owner of the lane lifts the block when the last one has left.
	discardDead = takeDead + freeKeys

	freeKeys = `,
block AS (
	UPDATE {schema}.outbox_block b SET state = 'draining' FROM d
	WHERE b.lane = d.lane AND b.ordering_key = d.ordering_key AND b.state = 'dead' AND b.head_seq = d.seq)
SELECT count(*) FROM d`

	// wakeHeads makes the first held row of each key due, unless a dead letter blocks the key. The condition on retry_after
	// stands in the search for the rows and not in the UPDATE. There the planner would choose the index on retry_after and read
	// all waiting rows of the lane; without it, the UPDATE uses the primary key.
	wakeHeads = `
WITH k AS (SELECT DISTINCT lane, ordering_key FROM unnest($1::smallint[], $2::text[]) u(lane, ordering_key)),
heads AS MATERIALIZED (
	SELECT k.lane, f.seq FROM k JOIN {schema}.outbox_block b USING (lane, ordering_key)
	CROSS JOIN LATERAL (` + headOfKey + `) f
	WHERE b.state <> 'dead' AND f.lane = k.lane AND f.ordering_key = k.ordering_key AND f.retry_after = 'infinity')
UPDATE {schema}.outbox_held h SET retry_after = greatest(clock_timestamp(), h.not_before)
FROM heads f WHERE h.lane = f.lane AND h.seq = f.seq`

	// headOfKey finds the first held row of key k, or of a later key if k has none. It compares rows, because only one index
	// fits such a comparison, also when the planner takes the table for empty. With equality, 50,000 replays took three times
	// as long.
	headOfKey = `
		SELECT x.lane, x.ordering_key, x.seq, x.retry_after FROM {schema}.outbox_held x
		WHERE (x.lane, x.ordering_key, x.seq) >= (k.lane, k.ordering_key, 0) ORDER BY x.lane, x.ordering_key, x.seq LIMIT 1`
)

func (s *Store) actOnOne(ctx context.Context, d deed, id string, opts []DeadOption) error {
	what := fmt.Sprintf("outbox: %s %s", d.action, id)
	if err := d.validate(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	parsed, err := uuid.Parse(id)
	if err != nil {
		return fmt.Errorf("%s: %w", what, ErrNotDead)
	}
	w := deadWithID(parsed, opts)
	d.alone = true
	b, err := s.act(ctx, d, w, 2)
	if err == nil && b.moved == 0 {
		err = ErrNotDead
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, pgsql.Explain(err))
	}
	s.Wake()
	return nil
}

func (s *Store) actOnAll(ctx context.Context, d deed, filter DeadFilter, bulk *Bulk) (moved int64, err error) {
	if bulk == nil {
		bulk = &Bulk{}
	}
	size := bulk.BatchSize
	if size <= 0 {
		size = defaultBulk
	}
	if err := errors.Join(d.validate(), filter.Validate()); err != nil {
		return 0, fmt.Errorf("outbox: %s dead letters: %w", d.action, err)
	}
	if bulk.DryRun {
		return s.CountDead(ctx, filter)
	}
	// What dies from now on, perhaps because it was replayed, is left for another call: this one ends.
	var now time.Time
	if err := s.sql.QueryRow(ctx, s.db, `SELECT clock_timestamp()`, nil, &now); err != nil {
		return 0, wrap("ask for the time", err)
	}
	if filter.DiedBefore.IsZero() || filter.DiedBefore.After(now) {
		filter.DiedBefore = now
	}
	return s.sweep(ctx, d, filter, pace.New(bulk.Rate, size), bulk.Progress)
}

// sweep goes over all that the filter selects, batch by batch.
func (s *Store) sweep(ctx context.Context, d deed, filter DeadFilter, p *pace.Pace, progress func(int64)) (moved int64, err error) {
	last := RowID{Lane: -1}
	for {
		w := filter.where()
		w.Add("(d.lane, d.seq) > (%s::smallint, %s::bigint)", last.Lane, last.Seq)
		b, err := s.act(ctx, d, w, p.Batch())
		if err != nil {
			return moved, fmt.Errorf("outbox: %s dead letters, after %d: %w", d.action, moved, pgsql.Explain(err))
		}
		if len(b.seqs) == 0 {
			return moved, nil
		}
		moved, last = moved+b.moved, b.last
		s.Wake()
		if progress != nil {
			progress(moved)
		}
		if err := p.Wait(ctx, b.moved); err != nil {
			return moved, fmt.Errorf("outbox: %s dead letters, after %d: %w", d.action, moved, err)
		}
	}
}

// batch is what one transaction treats.
type batch struct {
	lanes []int16 // ascending
	seqs  []int64
	keys  []string
	last  RowID
	moved int64
}

// act treats the first n dead letters for which the conditions hold, in one transaction. Another process may treat some of them
// after they were chosen and before their lanes are locked. Those are not counted and get no entry in the audit.
func (s *Store) act(ctx context.Context, d deed, w *pgsql.Where, n int) (b batch, err error) {
	run := s.adHoc()
	// Each statement after the lock has to see what was committed before the lock was given, whatever the server's
	// default is.
	err = s.db.RunInTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx bun.Tx) error {
		if b, err = s.pick(ctx, tx, w, n); err != nil || len(b.seqs) == 0 {
			return err
		}
		if d.alone && len(b.seqs) > 1 {
			return ErrSeveralDead
		}
		if _, err := run.Exec(ctx, tx, touchLanes, b.lanes); err != nil {
			return err
		}
		if d.payload != nil {
			if _, err := run.Exec(ctx, tx, editDead, b.lanes, b.seqs, d.payload); err != nil {
				return err
			}
		}
		args := []any{b.lanes, b.seqs, d.by.Actor, d.action, cleanText(d.by.Reason)}
		if err := run.QueryRow(ctx, tx, d.move, args, &b.moved); err != nil {
			return err
		}
		_, err := run.Exec(ctx, tx, wakeHeads, b.lanes, b.keys)
		return err
	})
	return b, err
}

func (s *Store) pick(ctx context.Context, tx bun.Tx, w *pgsql.Where, n int) (b batch, err error) {
	bound := w.Arg(n)
	err = pgsql.Each(s.adHoc().Query(ctx, tx, fmt.Sprintf(pickDead, w, bound), w.Args...), func(scan pgsql.Scan) error {
		var key string
		if err := scan(&b.last.Lane, &b.last.Seq, &key); err != nil {
			return err
		}
		b.lanes, b.seqs, b.keys = append(b.lanes, b.last.Lane), append(b.seqs, b.last.Seq), append(b.keys, key)
		return nil
	})
	return b, err
}
