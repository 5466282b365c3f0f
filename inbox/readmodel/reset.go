package readmodel

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/uow"
)

const (
	// closeGate waits for running handlers, and makes all others wait.
	closeGate = `SELECT FROM pg_advisory_xact_lock(hashtextextended($1::text, '{schema}.inbox_read_model'::regclass::oid::bigint))`

	// These wait for operators' transactions on parked messages and dead letters.
	lockDead   = `SELECT FROM {schema}.inbox_dead WHERE consumer = $1::text FOR UPDATE`
	lockParked = `SELECT FROM {schema}.inbox_parked WHERE consumer = $1::text FOR UPDATE`

	// dropEntered removes the messages that were set aside and have been entered in the generation meanwhile.
	dropEntered = `
DELETE FROM {schema}.inbox_parked p USING {schema}.inbox i
WHERE p.consumer = $2::text AND i.consumer = $1::text
	AND i.message_key = p.message_key AND i.tenant_id = p.tenant_id AND i.source = p.source`

	// putAside moves parked messages and dead letters from the name of the old generation to the name under which live messages wait,
	// behind these. Normally the history brings all of them again, and then the copies here are dropped. If it does not, they are not lost.
	putAside = `
WITH dead AS (
	DELETE FROM {schema}.inbox_dead WHERE consumer = $1::text RETURNING *
), parked AS (
	DELETE FROM {schema}.inbox_parked WHERE consumer = $1::text RETURNING *
), keys AS (
	DELETE FROM {schema}.inbox_key WHERE consumer = $1::text
), both_of_them AS (
	SELECT {message but consumer}, key_lock, seq FROM dead
	UNION ALL SELECT {message but consumer}, key_lock, seq FROM parked
)
INSERT INTO {schema}.inbox_parked (consumer, {message but consumer}, key_lock)
SELECT $2::text, {message but consumer}, key_lock FROM both_of_them ORDER BY seq
ON CONFLICT (message_key, consumer, tenant_id, source) DO NOTHING`

	// nextGeneration fails if the rebuild was taken over.
	nextGeneration = `
UPDATE {schema}.inbox_read_model SET generation = generation + 1, state = 'REBUILDING', checkpoint = '', events = 0,
	lease_until = clock_timestamp() + $3::interval, started_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE name = $1::text AND owner = $2::uuid AND generation = $4::bigint RETURNING generation`

	// lockWaiting takes the locks of the keys whose messages drain would take next, because operators may be at work on them.
	lockWaiting = `
SELECT FROM (SELECT DISTINCT key_lock FROM (` + firstWaiting + `) w ORDER BY key_lock) k,
	pg_advisory_xact_lock(hashint8extended(k.key_lock, '{schema}.inbox'::regclass::oid::bigint))`

	// firstWaiting lists waiting messages ordered by key and, within a key, by arrival: the first messages of a key come before the later
	// ones, which may be in a later portion.
	firstWaiting = `SELECT key_lock, seq FROM {schema}.inbox_parked WHERE consumer = $1::text ORDER BY key_lock, seq LIMIT $2::integer`

	// drain moves a portion of the waiting live messages to the parked messages, behind those, so that Inbox.RunParked handles them.
	// Messages that were replayed are dropped.
	drain = `
WITH taken AS (
	DELETE FROM {schema}.inbox_parked p USING (` + firstWaiting + `) f
	WHERE p.consumer = $1::text AND p.key_lock = f.key_lock AND p.seq = f.seq RETURNING p.*
), left_over AS MATERIALIZED (
	SELECT t.* FROM taken t WHERE NOT EXISTS (SELECT FROM {schema}.inbox i
		WHERE i.message_key = t.message_key AND i.consumer = $3::text AND i.tenant_id = t.tenant_id AND i.source = t.source)
), entered AS (
	INSERT INTO {schema}.inbox (message_key, consumer, tenant_id, source) SELECT message_key, $3::text, tenant_id, source FROM left_over
	ON CONFLICT DO NOTHING
), stopped AS (
	INSERT INTO {schema}.inbox_key (consumer, key_lock, tenant_id, ordering_key, state, due_at, topic)
	SELECT DISTINCT ON (key_lock) $3::text, key_lock, tenant_id, ordering_key, 'WAITING', clock_timestamp(), topic FROM left_over
	ORDER BY key_lock, seq
	ON CONFLICT DO NOTHING
), parked AS (
	INSERT INTO {schema}.inbox_parked (consumer, {message but consumer}, key_lock)
	SELECT $3::text, {message but consumer}, key_lock FROM left_over ORDER BY seq
	ON CONFLICT (message_key, consumer, tenant_id, source) DO NOTHING
)
SELECT count(*) FROM taken`

	// goLive and stillMine fail if the rebuild was taken over.
	stillMine = `
SELECT FROM {schema}.inbox_read_model WHERE name = $1::text AND owner = $2::uuid AND generation = $3::bigint AND state = 'REBUILDING' FOR UPDATE`
	goLive = `
UPDATE {schema}.inbox_read_model SET state = 'LIVE', owner = NULL, lease_until = '-infinity', updated_at = clock_timestamp()
WHERE name = $1::text AND owner = $2::uuid`

	// portion is how many messages drain takes while others wait.
	portion = 500
)

// reset clears the read model and begins a generation, in one transaction. It runs at READ COMMITTED: each statement
// has to see what others have committed while it waited at the gate.
func (r *rebuild) reset(ctx context.Context, empty func(context.Context, *uow.Unit) error) (generation int64, err error) {
	now := r.at.Consumer
	err = r.h.Units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		if err := r.exec(ctx, u.DB(), closeGate, r.name); err != nil {
			return err
		}
		for _, lock := range []string{lockDead, lockParked} {
			if err := r.exec(ctx, u.DB(), lock, now); err != nil {
				return err
			}
		}
		if err := empty(ctx, u); err != nil {
			return fmt.Errorf("empty the read model: %w", err)
		}
		next := store.GenerationName(r.name, r.at.Number+1) + store.Aside
		if err := r.exec(ctx, u.DB(), dropEntered, now, now+store.Aside); err != nil {
			return err
		}
		for _, from := range []string{now, now + store.Aside} {
			if err := r.exec(ctx, u.DB(), putAside, from, next); err != nil {
				return err
			}
		}
		if err := r.exec(ctx, u.DB(), store.ForgetConsumer, now); err != nil {
			return err
		}
		err := r.h.Patient.QueryRow(ctx, u.DB(), nextGeneration, []any{r.name, r.id, r.h.ParkedLease, r.at.Number}, &generation)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrRebuilding
		}
		return pgerr.Explain(err)
	}, uow.WithIsolation(sql.LevelReadCommitted))
	return generation, err
}

// finish parks the messages that wait, so that they are handled, and then opens the gate for live messages.
func (r *rebuild) finish(ctx context.Context) error {
	for left := true; left; {
		err := r.h.Units.Do(ctx, func(ctx context.Context, u *uow.Unit) (err error) {
			left, err = r.finishPortion(ctx, u.DB())
			// What waited is parked now. The runners are woken, so that it does not wait for their next poll.
			u.AfterCommit(func(context.Context) { r.h.Wake() })
			return err
		}, uow.WithIsolation(sql.LevelReadCommitted))
		if err != nil {
			return err
		}
	}
	return nil
}

// finishPortion is one transaction. Each of them is short, because live messages wait for it at the gate.
func (r *rebuild) finishPortion(ctx context.Context, tx bun.IDB) (left bool, err error) {
	now := r.at.Consumer
	if err := r.exec(ctx, tx, closeGate, r.name); err != nil {
		return false, err
	}
	mine, err := r.h.Patient.Exec(ctx, tx, stillMine, r.name, r.id, r.at.Number)
	if err != nil || mine == 0 {
		return false, errors.Join(ErrRebuilding, pgerr.Explain(err))
	}
	if err := r.exec(ctx, tx, lockWaiting, now+store.Aside, portion); err != nil {
		return false, err
	}
	var taken int
	if err := r.h.Patient.QueryRow(ctx, tx, drain, []any{now + store.Aside, portion, now}, &taken); err != nil {
		return false, pgerr.Explain(err)
	}
	// A full portion, so there may be more. The gate is open until the next one.
	if taken == portion {
		return true, nil
	}
	// Once more: a process that did not know of the reset may have noted a run of the old generation since.
	if err := r.exec(ctx, tx, store.ForgetConsumer, store.GenerationName(r.name, r.at.Number-1)); err != nil {
		return false, err
	}
	return false, r.exec(ctx, tx, goLive, r.name, r.id)
}

// exec uses statements without a time limit, because these wait for handlers and for operators.
func (r *rebuild) exec(ctx context.Context, tx bun.IDB, statement string, args ...any) error {
	_, err := r.h.Patient.Exec(ctx, tx, statement, args...)
	return pgerr.Explain(err)
}
