package lanedb

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// settleRows moves published rows out of the log. The ids are explicit: a range would also delete rows that committed
// late and were never published.
//
// The lane rows are locked first. Without the lock, a former owner could compare owner and epoch, be overtaken by a
// claim, and write after its successor has read.
const settleRows = settleFence + `,
gone AS (
	DELETE FROM {schema}.outbox o USING unnest($4::smallint[], $5::bigint[]) a(lane, seq), lane
	WHERE a.lane = lane.lane AND o.lane = a.lane AND o.seq = a.seq AND ` + sameServer + `$6::text RETURNING o.*),
moved AS (INSERT INTO {schema}.outbox_sent ({columns}, sent_at) SELECT {columns}, now() FROM gone)
SELECT lane FROM lane WHERE ` + sameServer + `$6::text`

// settleAndForget is settleRows for retention 0.
const settleAndForget = settleFence + `,
gone AS (
	DELETE FROM {schema}.outbox o USING unnest($4::smallint[], $5::bigint[]) a(lane, seq), lane
	WHERE a.lane = lane.lane AND o.lane = a.lane AND o.seq = a.seq AND ` + sameServer + `$6::text)
SELECT lane FROM lane WHERE ` + sameServer + `$6::text`

// settleFence commits asynchronously. A server that crashes may forget the settles of its last fraction of a second,
// and their rows are published again. The same happens if it crashes right before a settle, which cannot be ruled
// out. The order is kept, because a server always forgets the latest commits.
const settleFence = `
WITH lane AS MATERIALIZED (
	SELECT l.lane FROM ` + asynchronous + ` {schema}.outbox_lane l JOIN unnest($2::smallint[], $3::bigint[]) c(lane, epoch) USING (lane, epoch)
	WHERE l.owner = $1 ORDER BY l.lane FOR NO KEY UPDATE OF l)`

// Settle records that the broker has confirmed rows that do not stay where they are: they move to outbox_sent, or are
// deleted if the retention is 0. It returns the lanes that were still held. In all other lanes nothing was written.
func (s Moves) Settle(ctx context.Context, leases []Lease, published []outboxdb.RowID) (held map[int16]bool, err error) {
	owner, lanes, epochs := split(leases)
	rowLanes, seqs := splitIDs(published)
	statement := settleRows
	if !s.box.Keeps() {
		statement = settleAndForget
	}
	held, err = scanLanes(s.box.Run.Query(ctx, s.box.DB, statement, owner, lanes, epochs, rowLanes, seqs, incarnationOf(leases)))
	return held, outboxdb.Wrap("settle rows", err)
}

// Verdict says why a row leaves the lane without having been published.
type Verdict int16

const (
	// Refused: the broker refused the row. It waits for its next attempt and blocks its key.
	Refused Verdict = 1
	// Follower: an earlier row of its key is held. It waits behind it.
	Follower Verdict = 2
	// Dead: the row will never be taken. It becomes a dead letter and blocks its key.
	Dead Verdict = 3
	// Delayed: its NotBefore lies ahead. It blocks its key until then. Rows without a key are for [Moves.Delay].
	Delayed Verdict = 4
	// Abandoned is Dead for a topic whose keys go on: it blocks nothing.
	Abandoned Verdict = 5
)

// Outcome says what becomes of one row that leaves the lane without having been published.
type Outcome struct {
	Seq     int64
	Verdict Verdict
	Wait    time.Duration // Refused: until the next attempt
	Error   string        // Refused, Dead, Abandoned: why
	Cause   string        // the fingerprint of Error, see [outboxdb.Row.Fingerprint]
}

// holdFence also compares the operators' counter with the counter in the statement's snapshot. A statement that
// waited for the lane's row sees the new version of this row, and everything else as it was when the statement began.
// A key that an operator has freed meanwhile would look blocked, and a row that is held behind it would wait for
// ever.
const holdFence = `
WITH lane AS MATERIALIZED (
	SELECT l.lane FROM {schema}.outbox_lane l
	WHERE l.lane = $2 AND l.owner = $1 AND l.epoch = $3 AND l.change = (SELECT o.change FROM {schema}.outbox_lane o WHERE o.lane = $2)
		AND ` + sameServer + `$8::text
	FOR NO KEY UPDATE OF l)`

// holdRows takes fresh rows out of the lane, into held or dead, and blocks their keys, all or nothing.
// Verdicts: 1 refused, 2 follower, 3 dead, 4 delayed, 5 abandoned.
//
// If there is a block already, an operator made it a moment ago, by a replay of an earlier row of the key. It
// drains, unless a row of this statement is dead: then the key waits for an operator again.
//
// A row that has another row of its key in front of it waits at infinity, whatever its verdict: it becomes due when
// the row in front is settled. The row in front is a dead head, an earlier row that is held, or an earlier row of
// this statement. A follower without a row in front is the head itself, because the block that its owner knew was
// lifted or drained meanwhile. It is due as soon as its time allows, under a block of its own.
const holdRows = holdFence + `,
gone AS (
	DELETE FROM {schema}.outbox o
	USING unnest($4::bigint[], $5::smallint[], $6::interval[], $7::text[], $9::text[]) a(seq, verdict, wait, err, cause), lane
	WHERE o.lane = lane.lane AND o.seq = a.seq RETURNING o.*, a.verdict, a.wait, a.err, a.cause),
block AS (
	INSERT INTO {schema}.outbox_block AS b (lane, ordering_key, head_seq, state)
	SELECT lane, ordering_key, coalesce(min(seq) FILTER (WHERE verdict = 3), min(seq)),
		CASE WHEN bool_or(verdict = 3) THEN 'dead' ELSE 'failed' END
	FROM gone WHERE ordering_key IS NOT NULL AND verdict <> 5 GROUP BY lane, ordering_key
	ON CONFLICT (lane, ordering_key) DO UPDATE SET state = 'dead', head_seq = excluded.head_seq
	WHERE excluded.state = 'dead' AND b.state <> 'dead'),
held AS (
	INSERT INTO {schema}.outbox_held ({columns}, retry_after, error_message, fingerprint, cause_since)
	SELECT {columns counted}, CASE
		WHEN EXISTS (SELECT 1 FROM {schema}.outbox_block b
				WHERE b.lane = g.lane AND b.ordering_key = g.ordering_key AND b.state = 'dead')
			OR EXISTS (SELECT 1 FROM {schema}.outbox_held h
				WHERE h.lane = g.lane AND h.ordering_key = g.ordering_key AND h.seq < g.seq)
			OR EXISTS (SELECT 1 FROM gone f WHERE f.ordering_key = g.ordering_key AND f.seq < g.seq AND f.verdict <> 5)
		THEN 'infinity'
		WHEN verdict = 1 THEN clock_timestamp() + wait
		ELSE greatest(clock_timestamp(), not_before) END, err, cause, CASE WHEN cause <> '' THEN clock_timestamp() END
	FROM gone g WHERE verdict NOT IN (3, 5)),
dead AS (
	INSERT INTO {schema}.outbox_dead ({columns}, error_message, fingerprint) SELECT {columns counted}, err, cause FROM gone WHERE verdict IN (3, 5))
SELECT (SELECT count(*) FROM lane),
	(SELECT count(*) FROM {schema}.outbox_lane WHERE lane = $2 AND owner = $1 AND epoch = $3 AND ` + sameServer + `$8::text),
	(SELECT count(*) FROM gone),
	(SELECT count(*) FROM gone WHERE verdict IN (3, 5))`

// Hold takes rows out of their lane that were not published. It returns [ErrFenced] if the lane was lost, or if the rows were read from
// another server.
func (s Moves) Hold(ctx context.Context, lease Lease, outcomes []Outcome) error {
	seqs, verdicts := make([]int64, len(outcomes)), make([]int16, len(outcomes))
	waits, texts, causes := make([]time.Duration, len(outcomes)), make([]*string, len(outcomes)), make([]string, len(outcomes))
	for i, o := range outcomes {
		seqs[i], verdicts[i], waits[i] = o.Seq, int16(o.Verdict), o.Wait
		texts[i], causes[i] = outboxdb.Nullable(pgsql.CleanText(o.Error)), o.Cause
	}
	args := []any{lease.Owner, lease.Lane, lease.Epoch, seqs, verdicts, waits, texts, lease.Incarnation, causes}
	return announced(ctx, s.box, dyingFresh(lease.Lane, outcomes), func(ctx context.Context, tx bun.IDB) (made, error) {
		for {
			var fence, mine, moved, died int
			if err := s.box.Run.QueryRow(ctx, tx, holdRows, args, &fence, &mine, &moved, &died); err != nil {
				return made{}, outboxdb.Wrap("hold rows", err)
			}
			switch {
			case fence > 0:
				return made{n: died}, nil
			case mine == 0:
				return made{}, ErrFenced
			}
			// The statement waited while an operator changed the lane, and did nothing. The next try sees the change.
		}
	})
}
