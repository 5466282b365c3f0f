package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"
)

// ErrNotDead means that there is no dead letter with that id.
var ErrNotDead = errors.New("outbox: no dead letter with this id")

// DeadLetter is a row that was given up.
type DeadLetter struct {
	Row
	DiedAt time.Time
	Error  string
}

const listDead = `
SELECT ` + rowColumns + `, died_at, coalesce(error_message, '') FROM {schema}.outbox_dead
WHERE (died_at, id) > ($1::timestamptz, $2::text::uuid) ORDER BY died_at, id LIMIT $3`

// Dead lists dead letters, oldest first, at most limit of them, after the one given (nil: from the start).
func (s *Store) Dead(ctx context.Context, after *DeadLetter, limit int) ([]DeadLetter, error) {
	from, id := time.Unix(0, 0), "00000000-0000-0000-0000-000000000000"
	if after != nil {
		from, id = after.DiedAt, after.ID
	}
	rows, err := s.sql.Query(ctx, s.db, listDead, from, id, limit)
	if err != nil {
		return nil, wrap("list dead letters", err)
	}
	defer rows.Close()
	var out []DeadLetter
	for rows.Next() {
		var d DeadLetter
		if d.Row, err = scanRow(rows, &d.DiedAt, &d.Error); err != nil {
			return nil, wrap("list dead letters", err)
		}
		out = append(out, d)
	}
	return out, wrap("list dead letters", rows.Err())
}

const (
	// touchLane locks the lane's row and tells its owner that the blocks it knows are not those of the database any more.
	touchLane = `
UPDATE {schema}.outbox_lane l SET change = l.change + 1
FROM {schema}.outbox_dead d WHERE d.id = $1::text::uuid AND l.lane = d.lane`

	// replayDead makes a dead letter the head of its key again, with all its attempts. It keeps id and sequence, so it
	// leaves before everything that waits behind it, and consumers that have handled it already see a duplicate.
	replayDead = `
WITH d AS (DELETE FROM {schema}.outbox_dead WHERE id = $1::text::uuid RETURNING *),
b AS (
	INSERT INTO {schema}.outbox_block (lane, ordering_key, head_seq, state)
	SELECT lane, ordering_key, seq, 'draining' FROM d WHERE ordering_key IS NOT NULL
	ON CONFLICT (lane, ordering_key) DO UPDATE
	SET state = 'draining', head_seq = least(outbox_block.head_seq, excluded.head_seq))
INSERT INTO {schema}.outbox_held (` + columns + `, retry_after)
SELECT ` + freshColumns + `, clock_timestamp() FROM d`

	// discardDead deletes a dead letter and lets go what waits behind it: the next row of the key becomes due, and the
	// owner of the lane lifts the block when the last one has left.
	discardDead = `
WITH d AS (DELETE FROM {schema}.outbox_dead WHERE id = $1::text::uuid RETURNING lane, ordering_key, seq),
b AS (
	UPDATE {schema}.outbox_block b SET state = 'draining' FROM d
	WHERE b.lane = d.lane AND b.ordering_key = d.ordering_key AND b.state = 'dead' AND b.head_seq = d.seq
	RETURNING b.lane, b.ordering_key),
next AS (
	SELECT h.lane, min(h.seq) AS seq FROM {schema}.outbox_held h JOIN b USING (lane, ordering_key) GROUP BY h.lane)
UPDATE {schema}.outbox_held h SET retry_after = greatest(clock_timestamp(), h.not_before)
FROM next WHERE h.lane = next.lane AND h.seq = next.seq`

	// freshColumns is columns with the counters back at zero.
	freshColumns = `seq, id, occurred_at, created_at, not_before, expires_at, aggregate_version, schema_version, lane, max_attempts,
	0, 0, tenant_id, topic, ordering_key, aggregate_type, aggregate_id, event_type, source, routing_key,
	schema_id, content_type, dedup_key, event_metadata, payload`
)

// Replay publishes a dead letter after all, before whatever waits behind it. It returns [ErrNotDead] if there is none
// with this id.
func (s *Store) Replay(ctx context.Context, id string) error {
	return s.operate(ctx, "replay", id, replayDead)
}

// Discard deletes a dead letter for good; what waits behind it is published. It returns [ErrNotDead] if there is none
// with this id.
func (s *Store) Discard(ctx context.Context, id string) error {
	return s.operate(ctx, "discard", id, discardDead)
}

func (s *Store) operate(ctx context.Context, what, id, statement string) error {
	err := s.db.RunInTx(ctx, &sql.TxOptions{}, func(ctx context.Context, tx bun.Tx) error {
		touched, err := s.sql.Exec(ctx, tx, touchLane, id)
		if err != nil {
			return err
		}
		if touched == 0 {
			return ErrNotDead
		}
		_, err = s.sql.Exec(ctx, tx, statement, id)
		return err
	})
	if err != nil {
		return fmt.Errorf("outbox: %s %s: %w", what, id, err)
	}
	s.Wake()
	return nil
}
