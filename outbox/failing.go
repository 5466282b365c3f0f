package outbox

import (
	"context"
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Failing is an event that was refused, waits for its next try, and is the first of its key. Its payload is not read.
type Failing struct {
	Row
	// RetryAfter is when it may be tried again.
	RetryAfter time.Time
	// Error is the last refusal, at most 2 KiB of it.
	Error string
}

// failingRows goes from one blocked key to the next, and reads the first row of each. A row without a key is in no block: the next 100 rows
// that become due in each lane are looked at, for there may be millions of delayed ones behind them.
//
// The row comparison is that of headOfKey.
const failingRows = `
SELECT {columns but payload}, NULL::bytea AS payload` + outboxdb.RowEnd + `, retry_after, coalesce(error_message, '') FROM (
	(SELECT h.* FROM (
		SELECT b.lane, b.ordering_key FROM {schema}.outbox_block b WHERE b.state = 'failed' ORDER BY b.lane, b.ordering_key LIMIT $1) b
	CROSS JOIN LATERAL (
		SELECT x.* FROM {schema}.outbox_held x
		WHERE (x.lane, x.ordering_key, x.seq) >= (b.lane, b.ordering_key, 0) ORDER BY x.lane, x.ordering_key, x.seq LIMIT 1) h
	WHERE h.lane = b.lane AND h.ordering_key = b.ordering_key)
	UNION ALL
	(SELECT h.* FROM {schema}.outbox_lane l CROSS JOIN LATERAL (
		SELECT x.* FROM {schema}.outbox_held x WHERE x.lane = l.lane ORDER BY x.lane, x.retry_after, x.seq LIMIT 100) h
	WHERE h.ordering_key IS NULL AND h.retry_count > 0 LIMIT $1)) f
ORDER BY created_at, seq LIMIT $1`

// Failing lists events that were refused and wait for their next try, the oldest first, at most limit of them (0: 100). Of those of a key it
// lists the first, for which the others wait. Of those without a key it looks at the 100 of each lane that are due next.
func (s *Store) Failing(ctx context.Context, limit int) ([]Failing, error) {
	if limit <= 0 {
		limit = defaultPage
	}
	list, err := pgsql.Collect(s.adHoc().Query(ctx, s.db, failingRows, limit), func(scan pgsql.Scan, f *Failing) error {
		return outboxdb.ScanRow(scan, &f.Row, &f.RetryAfter, &f.Error)
	})
	return list, outboxdb.Wrap("list failing events", err)
}
