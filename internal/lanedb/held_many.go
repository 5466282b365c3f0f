package lanedb

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// LoadedLease is a lease whose blocks were read when the operators' counter was Change, see [Held.Blocks].
type LoadedLease struct {
	Lease
	Change int64
}

// heldFences is heldFence for several lanes. $5 is the incarnation.
const heldFences = `
WITH lane AS MATERIALIZED (
	SELECT l.lane FROM {schema}.outbox_lane l
	JOIN unnest($2::smallint[], $3::bigint[], $4::bigint[]) c(lane, epoch, change) USING (lane, epoch, change)
	WHERE l.owner = $1 AND ` + sameServer + `$5::text ORDER BY l.lane FOR NO KEY UPDATE OF l)`

// fencesOf turns leases into the first arguments of a statement with heldFences.
func fencesOf(leases []LoadedLease) []any {
	var owner, incarnation string
	var lanes []int16
	var epochs, changes []int64
	for _, l := range leases {
		owner, lanes, epochs, changes = l.Owner, append(lanes, l.Lane), append(epochs, l.Epoch), append(changes, l.Change)
		incarnation = l.Incarnation
	}
	return []any{owner, lanes, epochs, changes, incarnation}
}

// giveUpHeld makes heads and unordered rows dead letters, however many at once. The key of a dead row (verdict 3)
// stays blocked until an operator decides. The key of an abandoned row (verdict 5) goes on. A row that has an earlier
// row of its key in front of it stays: the block would name it, although the key waits for the earlier row.
const giveUpHeld = heldFences + `,
asked AS MATERIALIZED (
	SELECT k.lane, k.seq, a.verdict, a.err, a.cause
	FROM unnest($6::smallint[], $7::bigint[], $8::smallint[], $9::text[], $10::text[]) a(lane, seq, verdict, err, cause)
	JOIN lane USING (lane) JOIN {schema}.outbox_held k ON k.lane = a.lane AND k.seq = a.seq
	WHERE NOT EXISTS (SELECT FROM (` + outboxdb.HeadOfKey + `) f
		WHERE f.lane = k.lane AND f.ordering_key = k.ordering_key AND f.seq < k.seq)),
gone AS (
	DELETE FROM {schema}.outbox_held h USING asked a WHERE h.lane = a.lane AND h.seq = a.seq RETURNING h.*, a.verdict, a.err, a.cause),
block AS (
	INSERT INTO {schema}.outbox_block (lane, ordering_key, head_seq, state)
	SELECT lane, ordering_key, seq, 'dead' FROM gone WHERE ordering_key IS NOT NULL AND verdict = 3
	ON CONFLICT (lane, ordering_key) DO UPDATE SET state = 'dead', head_seq = excluded.head_seq),
dead AS (
	INSERT INTO {schema}.outbox_dead ({columns}, error_message, fingerprint) SELECT {columns counted}, err, cause FROM gone),
next AS MATERIALIZED (
	SELECT f.lane, f.ordering_key, f.seq, f.not_before, f.retry_after FROM gone CROSS JOIN LATERAL (
		SELECT x.lane, x.ordering_key, x.seq, x.not_before, x.retry_after FROM {schema}.outbox_held x
		WHERE (x.lane, x.ordering_key, x.seq) > (gone.lane, gone.ordering_key, gone.seq)
		ORDER BY x.lane, x.ordering_key, x.seq LIMIT 1) f
	WHERE gone.verdict = 5 AND f.lane = gone.lane AND f.ordering_key = gone.ordering_key),
due AS (
	UPDATE {schema}.outbox_held h SET retry_after = greatest(clock_timestamp(), next.not_before)
	FROM next WHERE h.lane = next.lane AND h.seq = next.seq AND next.retry_after = 'infinity'),
lift AS (
	DELETE FROM {schema}.outbox_block b USING gone g
	WHERE g.verdict = 5 AND b.lane = g.lane AND b.ordering_key = g.ordering_key AND b.state <> 'dead'
		AND NOT EXISTS (SELECT 1 FROM next n WHERE n.lane = b.lane AND n.ordering_key = b.ordering_key)
	RETURNING b.lane, b.ordering_key)
SELECT lane.lane, coalesce(g.seq, 0), t.lane IS NOT NULL
FROM lane LEFT JOIN gone g ON g.lane = lane.lane LEFT JOIN lift t ON t.lane = g.lane AND t.ordering_key = g.ordering_key`

// HeldOutcome says what becomes of one held row, [Dead] or [Abandoned].
type HeldOutcome struct {
	outboxdb.RowID
	Verdict Verdict
	Error   string
	Cause   string // the fingerprint of Error
}

// GivenUp is a held row that has become a dead letter. Lifted says that its key is free now.
type GivenUp struct {
	outboxdb.RowID
	Lifted bool
}

// GiveUpHeld records that held rows will never be taken. It returns the rows that are dead letters now, and the lanes
// that were still held and that no operator had changed. In all other lanes nothing was written, and their blocks
// must be loaded again. A row that is not the first one of its key stays.
func (s Held) GiveUpHeld(ctx context.Context, leases []LoadedLease, outcomes []HeldOutcome) (gone []GivenUp, held map[int16]bool, err error) {
	rowLanes, seqs := make([]int16, len(outcomes)), make([]int64, len(outcomes))
	verdicts, texts, causes := make([]int16, len(outcomes)), make([]string, len(outcomes)), make([]string, len(outcomes))
	for i, o := range outcomes {
		rowLanes[i], seqs[i], verdicts[i], texts[i], causes[i] = o.Lane, o.Seq, int16(o.Verdict), pgsql.CleanText(o.Error), o.Cause
	}
	err = announced(ctx, s.box, dyingHeld(outcomes), func(ctx context.Context, tx bun.IDB) (made, error) {
		gone, held, err = scanGivenUp(s.box.Run.Query(ctx, tx, giveUpHeld, append(fencesOf(leases), rowLanes, seqs, verdicts, texts, causes)...))
		return madeOf(gone), outboxdb.Wrap("give up held rows", err)
	})
	if err != nil {
		return nil, nil, err
	}
	return gone, held, nil
}

func scanGivenUp(rows *pgsql.Rows) (gone []GivenUp, held map[int16]bool, err error) {
	held = map[int16]bool{}
	err = pgsql.Each(rows, func(scan pgsql.Scan) error {
		var g GivenUp
		if err := scan(&g.Lane, &g.Seq, &g.Lifted); err != nil {
			return err
		}
		if held[g.Lane] = true; g.Seq > 0 {
			gone = append(gone, g)
		}
		return nil
	})
	return gone, held, err
}

// releaseKeys does for many keys what settleHeld does for one key after a row has left.
const releaseKeys = heldFences + `,
heads AS MATERIALIZED (
	SELECT k.lane, k.ordering_key, f.seq, f.retry_after
	FROM unnest($6::smallint[], $7::text[]) k(lane, ordering_key) JOIN lane USING (lane)
	LEFT JOIN LATERAL (` + outboxdb.HeadOfKey + `) f ON f.lane = k.lane AND f.ordering_key = k.ordering_key),
due AS (
	UPDATE {schema}.outbox_held h SET retry_after = greatest(clock_timestamp(), h.not_before)
	FROM heads f WHERE h.lane = f.lane AND h.seq = f.seq AND f.retry_after = 'infinity'),
lift AS (
	DELETE FROM {schema}.outbox_block b USING heads f
	WHERE f.seq IS NULL AND b.lane = f.lane AND b.ordering_key = f.ordering_key AND b.state <> 'dead'
	RETURNING b.lane, b.ordering_key)
SELECT lane.lane, coalesce(lift.ordering_key, '') FROM lane LEFT JOIN lift USING (lane)`

// LaneKey is an ordering key and its lane.
type LaneKey struct {
	Lane int16
	Key  string
}

// ReleaseKeys makes the first held row of each key due, or lifts the key's block if nothing is held. It returns the
// keys that are free now, and the lanes that were still held and that no operator had changed. In all other lanes
// nothing was written, and their blocks must be loaded again.
func (s Held) ReleaseKeys(ctx context.Context, leases []LoadedLease, keys []LaneKey) (lifted []LaneKey, held map[int16]bool, err error) {
	keyLanes, names := make([]int16, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		keyLanes[i], names[i] = k.Lane, k.Key
	}
	held = map[int16]bool{}
	err = pgsql.Each(s.box.Run.Query(ctx, s.box.DB, releaseKeys, append(fencesOf(leases), keyLanes, names)...), func(scan pgsql.Scan) error {
		var k LaneKey
		if err := scan(&k.Lane, &k.Key); err != nil {
			return err
		}
		if held[k.Lane] = true; k.Key != "" {
			lifted = append(lifted, k)
		}
		return nil
	})
	return lifted, held, outboxdb.Wrap("release keys", err)
}
