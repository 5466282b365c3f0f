package main

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"
)

// What an outage must leave alone: every row that waits, to the last byte, and whatever is not in the outbox.
const (
	rowsNow = `
SELECT 'outbox' AS part, seq, md5(o::text) AS content FROM outbox_unsent o
UNION ALL SELECT 'held', seq, md5(h::text) FROM outbox_held h
UNION ALL SELECT 'dead', seq, md5(d::text) FROM outbox_dead d
UNION ALL SELECT 'sent', count(*), '' FROM outbox_published`

	rememberRows = "CREATE TABLE outage_rows AS " + rowsNow

	// changedRows takes new rows of the outbox for what they are: the load goes on.
	changedRows = `
WITH now AS (` + rowsNow + `)
SELECT count(*) FROM outage_rows b FULL JOIN now n USING (part, seq)
WHERE b.content IS DISTINCT FROM n.content AND NOT (b.part IS NULL AND part = 'outbox')`

	spentAttempts = `
SELECT (SELECT count(*) FROM outbox_unsent WHERE retry_count > 0 OR crashes > 0)
	+ (SELECT count(*) FROM outbox_held WHERE retry_count > 0 OR crashes > 0) + (SELECT count(*) FROM outbox_dead)`

	unsentRows = "SELECT (SELECT count(*) FROM outbox_unsent) + (SELECT count(*) FROM outbox_held)"
)

// remember keeps what the rows look like.
func remember(ctx context.Context, db *bun.DB) error {
	if _, err := db.DB.ExecContext(ctx, rememberRows); err != nil {
		return fmt.Errorf("remember the rows: %w", err)
	}
	return nil
}

// changes compares the rows with those remembered, and counts the rows that paid for the outage.
func changes(ctx context.Context, db *bun.DB) (changed, attempts int, err error) {
	if err := db.DB.QueryRowContext(ctx, changedRows).Scan(&changed); err != nil {
		return 0, 0, fmt.Errorf("compare the rows: %w", err)
	}
	if err := db.DB.QueryRowContext(ctx, spentAttempts).Scan(&attempts); err != nil {
		return 0, 0, fmt.Errorf("count the attempts: %w", err)
	}
	return changed, attempts, nil
}

func unsent(ctx context.Context, db *bun.DB) (n int, err error) {
	if err := db.DB.QueryRowContext(ctx, unsentRows).Scan(&n); err != nil {
		return 0, fmt.Errorf("count what waits: %w", err)
	}
	return n, nil
}
