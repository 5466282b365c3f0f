package lanedb

import (
	"context"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Block is a key whose head is held or dead.
type Block struct {
	Key   string
	State string // failed, dead, draining
	// Stalled says that no row of the key is due or ever will be: there is no held row any more, or the first held
	// row waits for a head that is gone. Unless the block is dead, [Held.ReleaseKeys] mends that.
	Stalled bool
}

// LaneBlocks holds the blocks of one lane at one moment, with the operators' counter of that moment.
type LaneBlocks struct {
	Change int64
	Blocks []Block
}

// loadBlocks reads counter and blocks in one snapshot: an operator changes both in one transaction.
const loadBlocks = `
SELECT l.lane, l.change, coalesce(b.ordering_key, ''), coalesce(b.state, ''),
	coalesce((SELECT h.retry_after = 'infinity' FROM {schema}.outbox_held h
		WHERE h.lane = b.lane AND h.ordering_key = b.ordering_key ORDER BY h.seq LIMIT 1), true)
FROM {schema}.outbox_lane l LEFT JOIN {schema}.outbox_block b ON b.lane = l.lane
WHERE l.lane = ANY ($1::smallint[])`

// Blocks loads the blocks of the lanes.
func (s Held) Blocks(ctx context.Context, lanes []int16) (map[int16]LaneBlocks, error) {
	out := make(map[int16]LaneBlocks, len(lanes))
	err := pgsql.Each(s.box.Run.Query(ctx, s.box.DB, loadBlocks, lanes), func(scan pgsql.Scan) error {
		var lane int16
		var change int64
		var b Block
		if err := scan(&lane, &change, &b.Key, &b.State, &b.Stalled); err != nil {
			return err
		}
		lb := out[lane]
		lb.Change = change
		if b.State != "" {
			lb.Blocks = append(lb.Blocks, b)
		}
		out[lane] = lb
		return nil
	})
	return out, outboxdb.Wrap("load blocks", err)
}

// queueRows is written with a comparison of rows for the reason given at outboxdb.HeadOfKey: with equality, a planner that expects
// few rows of a key reads and sorts all of them for each hundred.
const queueRows = `
SELECT ` + outboxdb.RowColumns + ` FROM (
	SELECT *, row_number() OVER w AS n, sum(octet_length(payload)) OVER w AS bytes FROM (
		SELECT * FROM {schema}.outbox_held x
		WHERE (x.lane, x.ordering_key, x.seq) > ($1::smallint, $2::text, 0) ORDER BY x.lane, x.ordering_key, x.seq LIMIT 100) x
	WHERE lane = $1 AND ordering_key = $2 WINDOW w AS (ORDER BY seq ROWS UNBOUNDED PRECEDING)) x
WHERE n = 1 OR bytes <= $3::bigint ORDER BY seq`

// maxQueue bounds the payloads of a queue, in bytes.
const maxQueue = 1 << 20

// Queue returns the first held rows of a key, in order: at most 100, and no more than bytes of payload, or 1 MiB if that is
// less, unless the first row alone has more. 0: 1 MiB.
func (s Held) Queue(ctx context.Context, lane int16, key string, bytes int64) ([]outboxdb.Row, error) {
	if bytes <= 0 || bytes > maxQueue {
		bytes = maxQueue
	}
	out, err := outboxdb.ScanRows(s.box.Run.Query(ctx, s.box.DB, queueRows, lane, key, bytes))
	return out, outboxdb.Wrap("read the queue of a key", err)
}

// heldFence also compares the operators' counter. A statement that waited for the lane's row sees the new version of
// this row, and everything else as it was when the statement began. Without the counter it would lift a block behind
// which an operator's replay has just put a row.
const heldFence = `
WITH lane AS MATERIALIZED (
	SELECT lane FROM {schema}.outbox_lane WHERE lane = $2 AND owner = $1 AND epoch = $3 AND change = $4 AND ` + sameServer + `$8::text FOR NO KEY UPDATE)`

// settleHeld moves published rows of one key to outbox_sent, makes the next row due, and lifts the block if there is
// no next row. The statement has one snapshot, in which the rows that it deletes are still visible: hence "<> ALL".
const settleHeld = heldFence + `,
gone AS (
	DELETE FROM {schema}.outbox_held h
	WHERE h.lane = $2 AND h.seq = ANY ($5::bigint[]) AND EXISTS (SELECT FROM lane) RETURNING h.*),
moved AS (
	INSERT INTO {schema}.outbox_sent ({columns}, sent_at) SELECT {columns}, now() FROM gone WHERE $7),
next AS MATERIALIZED (
	SELECT h.lane, h.seq, h.not_before, h.retry_after FROM {schema}.outbox_held h
	WHERE h.lane = $2 AND h.ordering_key = $6 AND h.seq <> ALL ($5::bigint[]) AND EXISTS (SELECT FROM lane)
	ORDER BY h.seq LIMIT 1),
due AS (
	UPDATE {schema}.outbox_held h SET retry_after = greatest(clock_timestamp(), next.not_before)
	FROM next WHERE h.lane = next.lane AND h.seq = next.seq AND next.retry_after = 'infinity'),
lift AS (
	DELETE FROM {schema}.outbox_block b USING lane
	WHERE b.lane = lane.lane AND b.ordering_key = $6 AND b.state <> 'dead' AND NOT EXISTS (SELECT 1 FROM next)
	RETURNING 1)
SELECT (SELECT count(*) FROM lane), (SELECT count(*) FROM lift)`

// SettleHeld records that the broker confirmed held rows of one key ("" for an unordered row). It returns whether the
// key is free now, and [ErrFenced] if the lane was lost or an operator changed it: then the blocks must be loaded again.
func (s Held) SettleHeld(ctx context.Context, lease Lease, change int64, key string, published []int64) (lifted bool, err error) {
	var fence, lifts int
	args := []any{lease.Owner, lease.Lane, lease.Epoch, change, published, outboxdb.Nullable(key), s.box.Keeps(), lease.Incarnation}
	if err := s.box.Run.QueryRow(ctx, s.box.DB, settleHeld, args, &fence, &lifts); err != nil {
		return false, outboxdb.Wrap("settle held rows", err)
	}
	if fence == 0 {
		return false, ErrFenced
	}
	return lifts > 0, nil
}

// retryHeld counts one more refusal of a head.
const retryHeld = heldFence + `
UPDATE {schema}.outbox_held h SET retry_count = h.retry_count + 1, crashes = 0, retry_after = clock_timestamp() + $6::interval, error_message = $7,
	fingerprint = $9::text, cause_since = CASE WHEN h.fingerprint = $9::text THEN h.cause_since ELSE clock_timestamp() END
FROM lane WHERE h.lane = lane.lane AND h.seq = $5 RETURNING h.retry_count`

// RetryHeld records that a held row was refused again, for which reason, and how long it waits for its next attempt. change is that of
// [LoadedLease]. It returns [ErrFenced] if the lane was lost or an operator changed it.
func (s Held) RetryHeld(ctx context.Context, lease Lease, change int64, o Outcome) error {
	args := []any{lease.Owner, lease.Lane, lease.Epoch, change, o.Seq, o.Wait, pgsql.CleanText(o.Error), lease.Incarnation, o.Cause}
	n, err := s.box.Run.Exec(ctx, s.box.DB, retryHeld, args...)
	return fencedUnless(n, outboxdb.Wrap("hold a row again", err))
}

// fencedUnless turns "no row was touched" into [ErrFenced].
func fencedUnless(n int64, err error) error {
	if err == nil && n == 0 {
		return ErrFenced
	}
	return err
}
