package state

import (
	"context"
	"strings"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Disorder is one kind of fault among waiting rows and the blocks of keys. Transactions of oncebox leave none: somebody
// has changed rows by hand, or has restored only a part of a backup.
type Disorder struct {
	// Problem describes the fault.
	Problem string
	// Count is the number of keys with the fault, or of events if Problem is about events.
	Count int64
	// Example is the ordering key of one case, or the id of an event without a key.
	Example string
	// Mend has the statements that repair the fault, in one transaction. After its commit the relays that
	// own the lanes read the blocks again.
	Mend string
}

// lookForDisorder reads the first waiting row of each key by the index of the keys, and all blocks. It is one snapshot, and everybody changes these
// tables together, so it sees no state between two steps. A key without held rows whose block drains is in order: the owner of the lane
// lifts the block when it looks.
const lookForDisorder = `
WITH heads AS MATERIALIZED (
	SELECT DISTINCT ON (h.lane, h.ordering_key) h.lane, h.ordering_key, h.seq, h.retry_after
	FROM {schema}.outbox_held h WHERE h.ordering_key IS NOT NULL ORDER BY h.lane, h.ordering_key, h.seq),
wrong AS (
	SELECT CASE
			WHEN b.state IS NULL THEN '` + kindUnblocked + `'
			WHEN b.state = 'dead' AND NOT EXISTS (SELECT FROM {schema}.outbox_dead d WHERE d.lane = b.lane AND d.seq = b.head_seq) THEN '` + kindOrphaned + `'
			WHEN b.state = 'dead' AND h.retry_after < 'infinity' THEN '` + kindEarly + `'
			WHEN b.state <> 'dead' AND h.retry_after = 'infinity' OR b.state = 'failed' AND h.seq IS NULL THEN '` + kindStalled + `' END AS kind,
		lane, ordering_key AS name
	FROM heads h FULL JOIN {schema}.outbox_block b USING (lane, ordering_key)
	UNION ALL
	SELECT '` + kindEndless + `', h.lane, h.id::text
	FROM {schema}.outbox_held h WHERE h.ordering_key IS NULL AND h.retry_after = 'infinity'
	UNION ALL
	SELECT '` + kindEarly + `', h.lane, h.ordering_key
	FROM {schema}.outbox_held h JOIN heads f USING (lane, ordering_key)
	WHERE h.seq > f.seq AND h.retry_after <= (SELECT clock_timestamp()))
SELECT kind, count(*), min(name), array_to_string(array_agg(DISTINCT lane), ', ') FROM wrong WHERE kind IS NOT NULL GROUP BY kind ORDER BY kind`

// The kinds of disorder.
const (
	kindUnblocked = "unblocked"
	kindOrphaned  = "orphaned"
	kindStalled   = "stalled"
	kindEndless   = "endless"
	kindEarly     = "early"
)

// The statements that repair lanes. {lanes} stands for the lanes.
const (
	// touchDisorder locks the lanes, and has their owners read the blocks anew. An owner that finds a stalled key releases it.
	touchDisorder = `UPDATE {schema}.outbox_lane SET change = change + 1 WHERE lane IN ({lanes})`

	// addBlocks blocks keys with held rows. A key with a dead letter waits for an operator: publishing an event too
	// late does less harm than publishing it too early.
	addBlocks = `INSERT INTO {schema}.outbox_block (lane, ordering_key, head_seq, state) ` +
		`SELECT f.lane, f.ordering_key, coalesce(min(d.seq), f.seq), CASE WHEN count(d.seq) > 0 THEN 'dead' ELSE 'draining' END ` +
		`FROM (SELECT lane, ordering_key, min(seq) AS seq FROM {schema}.outbox_held ` +
		`WHERE lane IN ({lanes}) AND ordering_key IS NOT NULL GROUP BY lane, ordering_key) f ` +
		`LEFT JOIN {schema}.outbox_dead d ON d.lane = f.lane AND d.ordering_key = f.ordering_key AND d.seq < f.seq ` +
		`GROUP BY f.lane, f.ordering_key, f.seq ON CONFLICT DO NOTHING`

	freeOrphans = `UPDATE {schema}.outbox_block b SET state = 'draining' WHERE lane IN ({lanes}) AND state = 'dead' ` +
		`AND NOT EXISTS (SELECT FROM {schema}.outbox_dead d WHERE d.lane = b.lane AND d.seq = b.head_seq)`

	wakeEndless = `UPDATE {schema}.outbox_held SET retry_after = greatest(clock_timestamp(), not_before) ` +
		`WHERE lane IN ({lanes}) AND ordering_key IS NULL AND retry_after = 'infinity'`

	// calmEarly leaves the rows to the row in front of them: when that one has left, the next one is due.
	calmEarly = `UPDATE {schema}.outbox_held h SET retry_after = 'infinity' WHERE lane IN ({lanes}) AND retry_after < 'infinity' AND (` +
		`EXISTS (SELECT FROM {schema}.outbox_held f WHERE f.lane = h.lane AND f.ordering_key = h.ordering_key AND f.seq < h.seq) OR ` +
		`EXISTS (SELECT FROM {schema}.outbox_block b WHERE b.lane = h.lane AND b.ordering_key = h.ordering_key AND b.state = 'dead'))`
)

// remedy is the description of a kind of disorder, and the statement that repairs it after touchDisorder;
// "" if touchDisorder is enough.
type remedy struct{ problem, statement string }

func remedies() map[string]remedy {
	return map[string]remedy{
		kindUnblocked: {"ordering keys have held events but no row in outbox_block, so later events of these keys overtake the held ones", addBlocks},
		kindOrphaned:  {"ordering keys wait for a dead letter that does not exist, so it can neither be replayed nor discarded", freeOrphans},
		kindStalled:   {"ordering keys are blocked, but none of their events has a time for its next try, so they wait for ever", ""},
		kindEndless:   {"events without an ordering key are held without a time for their next try, so they wait for ever", wakeEndless},
		kindEarly: {"ordering keys have events whose next try is due although they are not first: the relay reads them again and again, which delays " +
			"other events", calmEarly},
	}
}

// Disorder looks for waiting rows that would never be published, or not in their order, because somebody has changed
// rows by hand or has restored a part of a backup. It only reads: the first waiting row of each key, and all waiting
// rows without a key. Each fault comes with the statements that repair it; after the repair a further call may find
// more. Deleted rows cannot be restored.
func (s *Reader) Disorder(ctx context.Context) ([]Disorder, error) {
	list, err := pgsql.Collect(s.box.AdHoc().Query(ctx, s.box.DB, lookForDisorder), func(scan pgsql.Scan, d *Disorder) error {
		var kind, lanes string
		err := scan(&kind, &d.Count, &d.Example, &lanes)
		r := remedies()[kind]
		d.Problem, d.Mend = r.problem, s.mending(r.statement, lanes)
		return err
	})
	return list, outboxdb.Wrap("look for disorder", err)
}

// mending returns a transaction that repairs lanes.
func (s *Reader) mending(statement, lanes string) string {
	steps := []string{"BEGIN", touchDisorder}
	if statement != "" {
		steps = append(steps, statement)
	}
	text := strings.Join(append(steps, "COMMIT"), "; ")
	return strings.ReplaceAll(s.box.Run.Text(text), "{lanes}", lanes)
}
