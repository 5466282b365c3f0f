package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pace"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/uow"
)

// Bulk says how many dead letters are treated at once.
type Bulk struct {
	// BatchSize is how many dead letters are moved per transaction, in which their keys stand still. Default: 100.
	BatchSize int
	// DryRun counts what the filter selects and changes nothing. Default: false.
	DryRun bool
	// Rate is how many dead letters are moved per second at most, so that the service that publishes or handles them is not flooded. The call returns
	// only when the next one may begin. Default: 0, no bound.
	Rate float64
	// Progress is called after each batch with the number of dead letters moved so far. Default: none.
	Progress func(done int64)
}

const defaultBulk = 100

// Replay has a dead letter handled after all, by the processes of its consumer, in their [Inbox.RunParked]; the caller needs
// no handler. It goes back to where it stood in its key, before whatever waits behind it, and gets all its attempts back. It
// returns [ErrNotDead] if there is none with this key.
//
// One whose key flows, because it has no order or dead letters let pass, is handled as soon as somebody looks, and later
// messages of its key wait for it from then on. One whose key another dead letter holds waits until that one is decided. One
// that was handled since, because its message came again when nobody remembered it, is not handled twice.
func (i *Inbox) Replay(ctx context.Context, key MessageRef, by By) error {
	return i.actOnOne(ctx, deed{action: ActionReplay, move: replayDead, by: by}, key)
}

// Discard deletes a dead letter for good; what waits behind it is handled without it. by must give a reason. It returns
// [ErrNotDead] if there is none with this key.
func (i *Inbox) Discard(ctx context.Context, key MessageRef, by By) error {
	return i.actOnOne(ctx, deed{action: ActionDiscard, move: discardDead, by: by}, key)
}

// ReplayAll replays the dead letters that the filter selects and that are dead when it begins, per key in their order. It
// returns how many it moved, also beside an error: each batch is a transaction of its own, and the batches before stay. See
// [Inbox.Replay].
func (i *Inbox) ReplayAll(ctx context.Context, filter DeadFilter, by By, bulk *Bulk) (int64, error) {
	return i.actOnAll(ctx, deed{action: ActionReplay, move: replayDead, by: by}, filter, bulk)
}

// DiscardAll discards the dead letters that the filter selects and that are dead when it begins. by must give a reason.
// It returns how many it deleted, also beside an error, as [Inbox.ReplayAll] does.
func (i *Inbox) DiscardAll(ctx context.Context, filter DeadFilter, by By, bulk *Bulk) (int64, error) {
	return i.actOnAll(ctx, deed{action: ActionDiscard, move: discardDead, by: by}, filter, bulk)
}

// deed is one kind of thing to do with dead letters.
type deed struct {
	action, move string
	by           By
	payload      []byte // the new one; nil: that which came
}

const (
	// pickDead chooses a batch in the order of the locks and, within a key, of its messages.
	pickDead = `
SELECT d.message_key::text, d.consumer, d.tenant_id, d.source, d.key_lock, d.seq FROM {schema}.inbox_dead d
WHERE %s ORDER BY d.key_lock, d.seq LIMIT %s`

	// lockKeys takes the locks in an order that all share. From here on nobody else changes these keys, what is parked in
	// them, or their dead letters. What follows must be another statement, to see what was committed before.
	lockKeys = `
SELECT pg_advisory_xact_lock(hashint8extended(l.key_lock, '{schema}.inbox'::regclass::oid::bigint))
FROM (SELECT DISTINCT u.key_lock FROM unnest($1::bigint[]) u(key_lock) ORDER BY 1) l`

	takeDead = `
WITH d AS (
	DELETE FROM {schema}.inbox_dead d USING unnest($4::uuid[], $5::text[], $6::text[], $7::text[], $8::bigint[]) u(m, c, t, s, l)
	WHERE d.message_key = u.m AND d.consumer = u.c AND d.tenant_id = u.t AND d.source = u.s AND d.key_lock = u.l RETURNING d.*)`

	noteDead = `, noted AS (` + noteDeeds + `d ORDER BY key_lock, seq)`

	// released tells of a key k that waits for a decision whether it was about what is in d, and not about another one.
	released = `
	k.state = 'DEAD' AND NOT EXISTS (SELECT FROM {schema}.inbox_dead o
		WHERE o.consumer = k.consumer AND o.key_lock = k.key_lock AND o.holds
			AND (o.message_key, o.consumer, o.tenant_id, o.source) NOT IN (SELECT message_key, consumer, tenant_id, source FROM d))`

	// replayDead parks dead letters where they stood. The entries are for those that have expired since: a copy that comes now
	// must not be handled beside them. A dead letter that holds no key, and has an entry that is younger than its death, was handled since.
	// A key that does not flow for another reason, or is being worked on, is left alone.
	replayDead = takeDead + noteDead + `,
entered AS (
	INSERT INTO {schema}.inbox AS i (message_key, consumer, tenant_id, source)
	SELECT message_key, consumer, tenant_id, source FROM d ORDER BY 1, 3, 4
	ON CONFLICT (message_key, consumer, tenant_id, source) DO UPDATE SET processed_at = i.processed_at
	RETURNING message_key, consumer, tenant_id, source, processed_at),
open AS (
	SELECT d.* FROM d JOIN entered e USING (message_key, consumer, tenant_id, source)
	WHERE d.holds OR e.processed_at <= d.died_at OR e.processed_at = now()),
parked AS (
	INSERT INTO {schema}.inbox_parked (` + messageColumns + `, key_lock, seq) SELECT ` + messageColumns + `, key_lock, seq FROM open
	ON CONFLICT (message_key, consumer, tenant_id, source) DO UPDATE SET parked_at = clock_timestamp()),
keys AS (
	INSERT INTO {schema}.inbox_key AS k (consumer, key_lock, tenant_id, ordering_key, state, due_at)
	SELECT DISTINCT ON (consumer, key_lock) consumer, key_lock, tenant_id, ordering_key, 'WAITING', clock_timestamp()
	FROM open ORDER BY consumer, key_lock, seq
	ON CONFLICT (consumer, key_lock) DO UPDATE SET state = 'WAITING', due_at = excluded.due_at WHERE` + released + `)
SELECT count(*) FROM d`

	// discardDead deletes dead letters. A key that one of them held goes on with what is behind it, or flows.
	discardDead = takeDead + noteDead + freeKeys

	freeKeys = `,
free AS MATERIALIZED (
	SELECT k.consumer, k.key_lock, EXISTS (
		SELECT FROM {schema}.inbox_parked p WHERE p.consumer = k.consumer AND p.key_lock = k.key_lock) AS waits
	FROM {schema}.inbox_key k JOIN (SELECT DISTINCT consumer, key_lock FROM d) x USING (consumer, key_lock) WHERE` + released + `),
waiting AS (
	UPDATE {schema}.inbox_key k SET state = 'WAITING', due_at = clock_timestamp()
	FROM free f WHERE k.consumer = f.consumer AND k.key_lock = f.key_lock AND f.waits),
flowing AS (
	DELETE FROM {schema}.inbox_key k USING free f WHERE k.consumer = f.consumer AND k.key_lock = f.key_lock AND NOT f.waits)
SELECT count(*) FROM d`
)

func (i *Inbox) actOnOne(ctx context.Context, d deed, key MessageRef) error {
	what := fmt.Sprintf("%s %s of consumer %s", d.action, key.MessageKey, key.Consumer)
	args, err := key.args()
	if err := errors.Join(d.by.validate(d.action), err); err != nil {
		return wrapErr(what, err)
	}
	w := &pgsql.Where{}
	w.Add("d.message_key = %s::uuid AND d.consumer = %s::text AND d.tenant_id = %s::text AND d.source = %s::text", args...)
	b, err := i.act(ctx, d, w, 1)
	if err == nil && b.moved == 0 {
		err = ErrNotDead
	}
	return wrapErr(what, err)
}

func (i *Inbox) actOnAll(ctx context.Context, d deed, filter DeadFilter, bulk *Bulk) (moved int64, err error) {
	if bulk == nil {
		bulk = &Bulk{}
	}
	size := bulk.BatchSize
	if size <= 0 {
		size = defaultBulk
	}
	if err := errors.Join(d.by.validate(d.action), filter.Validate()); err != nil {
		return 0, fmt.Errorf("inbox: %s dead letters: %w", d.action, err)
	}
	if bulk.DryRun {
		return i.CountDead(ctx, filter)
	}
	// What dies from now on, perhaps because it was replayed, is left for another call: this one ends.
	var now time.Time
	if err := i.patient.QueryRow(ctx, i.units.DB(ctx), `SELECT clock_timestamp()`, nil, &now); err != nil {
		return 0, wrapErr("ask for the time", err)
	}
	if filter.DiedBefore.IsZero() || filter.DiedBefore.After(now) {
		filter.DiedBefore = now
	}
	return i.sweep(ctx, d, filter, pace.New(bulk.Rate, size), bulk.Progress)
}

// sweep goes over all that the filter selects, batch by batch.
func (i *Inbox) sweep(ctx context.Context, d deed, filter DeadFilter, p *pace.Pace, progress func(int64)) (moved int64, err error) {
	var last *place
	for {
		w := filter.where()
		if last != nil {
			w.Add("(d.key_lock, d.seq) > (%s::bigint, %s::bigint)", last.lock, last.seq)
		}
		b, err := i.act(ctx, d, w, p.Batch())
		if err != nil {
			return moved, wrapErr(fmt.Sprintf("%s dead letters, after %d", d.action, moved), err)
		}
		if len(b.locks) == 0 {
			return moved, nil
		}
		moved, last = moved+b.moved, &b.last
		if progress != nil {
			progress(moved)
		}
		if err := p.Wait(ctx, b.moved); err != nil {
			return moved, wrapErr(fmt.Sprintf("%s dead letters, after %d", d.action, moved), err)
		}
	}
}

// place is where a message stands.
type place struct{ lock, seq int64 }

// picked is what one transaction treats.
type picked struct {
	keys, consumers, tenants, sources []string
	locks                             []int64 // of each message, ascending
	last                              place
	moved                             int64
}

// act treats the first n dead letters for which the conditions hold, in one transaction. Somebody else may be faster with
// some of them between the look and the lock; those are not in the count, and have no audit row of this deed.
func (i *Inbox) act(ctx context.Context, d deed, w *pgsql.Where, n int) (b picked, err error) {
	run := i.adHoc()
	bound := w.Arg(n)
	err = i.units.Do(ctx, func(ctx context.Context, u *uow.Unit) (err error) {
		if b, err = i.pick(ctx, u.DB(), fmt.Sprintf(pickDead, w, bound), w.Args); err != nil || len(b.locks) == 0 {
			return err
		}
		if _, err := run.Exec(ctx, u.DB(), lockKeys, b.locks); err != nil {
			return err
		}
		if d.payload != nil {
			if _, err := run.Exec(ctx, u.DB(), editDead, b.keys, b.consumers, b.tenants, b.sources, d.payload); err != nil {
				return err
			}
		}
		args := []any{d.by.Actor, d.action, cleanText(d.by.Reason), b.keys, b.consumers, b.tenants, b.sources, b.locks}
		if err := run.QueryRow(ctx, u.DB(), d.move, args, &b.moved); err != nil {
			return err
		}
		u.AfterCommit(func(context.Context) { i.wake() })
		_, err = run.Exec(ctx, u.DB(), setTopics, b.consumers, b.locks)
		return err
	}, readCommitted())
	return b, err
}

func (i *Inbox) pick(ctx context.Context, tx bun.IDB, statement string, args []any) (b picked, err error) {
	err = pgsql.Each(i.adHoc().Query(ctx, tx, statement, args...), func(scan pgsql.Scan) error {
		var k MessageRef
		if err := scan(&k.MessageKey, &k.Consumer, &k.TenantID, &k.Source, &b.last.lock, &b.last.seq); err != nil {
			return err
		}
		b.add(k, b.last.lock)
		return nil
	})
	return b, err
}

func (b *picked) add(k MessageRef, lock int64) {
	b.keys, b.consumers = append(b.keys, k.MessageKey), append(b.consumers, k.Consumer)
	b.tenants, b.sources = append(b.tenants, k.TenantID), append(b.sources, k.Source)
	b.locks = append(b.locks, lock)
}
