package inbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pace"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

const (
	countParked = `
SELECT count(*) FROM {schema}.inbox_key k CROSS JOIN LATERAL (
	SELECT * FROM {schema}.inbox_parked x WHERE x.consumer = k.consumer AND x.key_lock = k.key_lock AND %s ORDER BY x.seq LIMIT %s) p
WHERE %s`

	// retryMany is retryNow for the first messages of many keys, in the order of the keys. A key that is locked is just being worked on, or another
	// operator has it.
	retryMany = `
WITH chosen AS MATERIALIZED (
	SELECT k.consumer, k.key_lock, p.seq FROM {schema}.inbox_key k CROSS JOIN LATERAL (
		SELECT * FROM {schema}.inbox_parked x WHERE x.consumer = k.consumer AND x.key_lock = k.key_lock ORDER BY x.seq LIMIT 1) p
	WHERE k.owner IS NULL AND %s ORDER BY k.consumer, k.key_lock LIMIT %s FOR UPDATE OF k SKIP LOCKED),
p AS (
	UPDATE {schema}.inbox_key k SET state = 'WAITING', due_at = clock_timestamp()
	FROM chosen c JOIN {schema}.inbox_parked p USING (consumer, key_lock, seq)
	WHERE k.consumer = c.consumer AND k.key_lock = c.key_lock
	RETURNING p.*),
noted AS (` + store.NoteDeeds + `p ORDER BY consumer, key_lock)
SELECT consumer, key_lock, (SELECT count(*) FROM p) FROM chosen ORDER BY consumer DESC, key_lock DESC LIMIT 1`
)

// CountParked counts the parked messages that the filter selects.
func (i *Inbox) CountParked(ctx context.Context, filter ParkedFilter) (int64, error) {
	if err := filter.Validate(); err != nil {
		return 0, err
	}
	w, ofKey := filter.where()
	perKey := "ALL"
	if filter.FirstOnly {
		perKey = "1"
	}
	var n int64
	err := i.store.AdHoc().QueryRow(ctx, i.store.DB(ctx), fmt.Sprintf(countParked, ofKey, perKey, w), w.Args, &n)
	return n, wrapErr("count parked messages", err)
}

// RetryAll is [Inbox.RetryNow] for each key that failed and whose first message the filter selects, after an outage for example. State and FirstOnly of
// the filter are set. It returns how many messages are tried at once, also beside an error: each batch is a transaction of its own, and the
// batches before stay. What is just being tried is left alone.
func (i *Inbox) RetryAll(ctx context.Context, filter ParkedFilter, by operator.By, bulk *operator.Bulk) (moved int64, err error) {
	if bulk == nil {
		bulk = &operator.Bulk{}
	}
	filter.State, filter.FirstOnly = KeyFailed, true
	if err := errors.Join(by.Validate(operator.Retry), filter.Validate()); err != nil {
		return 0, fmt.Errorf("inbox: %s parked messages: %w", operator.Retry, err)
	}
	if bulk.DryRun {
		return i.CountParked(ctx, filter)
	}
	p := pace.New(bulk.Rate, cmp.Or(max(bulk.BatchSize, 0), deadBatch))
	var after *keyPlace
	for {
		last, n, err := i.retryBatch(ctx, filter, by, after, p.Batch())
		moved += n
		if err == nil && last != nil && bulk.Progress != nil {
			bulk.Progress(moved)
		}
		if err == nil && last != nil {
			err = p.Wait(ctx, n)
		}
		if err != nil {
			return moved, wrapErr(fmt.Sprintf("%s parked messages, after %d", operator.Retry, moved), err)
		}
		if last == nil {
			return moved, nil
		}
		after = last
	}
}

// keyPlace is where a key stands among all.
type keyPlace struct {
	consumer string
	lock     int64
}

// retryBatch has the next keys tried. last is nil if there is none.
func (i *Inbox) retryBatch(ctx context.Context, filter ParkedFilter, by operator.By, after *keyPlace, size int) (last *keyPlace, n int64, err error) {
	w, _ := filter.where(by.Actor, string(operator.Retry), pgsql.CleanText(by.Reason))
	if after != nil {
		w.Add("(k.consumer, k.key_lock) > (%s::text, %s::bigint)", after.consumer, after.lock)
	}
	bound := w.Arg(size)
	var at keyPlace
	err = i.store.AdHoc().QueryRow(ctx, i.store.DB(ctx), fmt.Sprintf(retryMany, w, bound), w.Args, &at.consumer, &at.lock, &n)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, 0, nil
	case err != nil:
		return nil, 0, err
	}
	i.wake()
	return &at, n, nil
}
