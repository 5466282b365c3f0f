package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// head is the first message of a key that does not flow.
type head struct {
	seq      int64
	attempts int
	parked   time.Time
	unknown  time.Duration // for how long no build has known it that tried it, see DeployWait
	failing  time.Duration // for how long it has failed, see GiveUpAfter
	key      store.Ref
	envelope event.Envelope
}

const (
	// takeHead locks the first message of a key. It returns no row if another process has the key by now, or runs the message still. Only
	// the first message can be taken: SKIP LOCKED must not lead to the one behind it.
	takeHead = `
SELECT ` + store.EnvelopeColumns + `, attempts, seq, parked_at,
	coalesce(extract(epoch FROM clock_timestamp() - unknown_since), 0)::float8,
	coalesce(extract(epoch FROM clock_timestamp() - failing_since), 0)::float8 FROM {schema}.inbox_parked p
WHERE consumer = $1::text AND key_lock = $2::bigint
	AND seq = (SELECT min(seq) FROM {schema}.inbox_parked WHERE consumer = $1::text AND key_lock = $2::bigint)
	AND EXISTS (SELECT FROM {schema}.inbox_key k WHERE k.consumer = $1::text AND k.key_lock = $2::bigint AND k.owner = $3::uuid)
FOR UPDATE OF p SKIP LOCKED`

	// countHead counts a try before it is made. It waits for no other process that runs the message still.
	countHead = `
UPDATE {schema}.inbox_parked p SET attempts = p.attempts + 1, unended = p.unended + 1
FROM (
	SELECT f.message_key, f.consumer, f.tenant_id, f.source FROM {schema}.inbox_parked f WHERE f.consumer = $1::text AND f.key_lock = $2::bigint
		AND f.seq = (SELECT min(seq) FROM {schema}.inbox_parked WHERE consumer = $1::text AND key_lock = $2::bigint)
		AND EXISTS (SELECT FROM {schema}.inbox_key k WHERE k.consumer = $1::text AND k.key_lock = $2::bigint AND k.owner = $3::uuid)
	FOR UPDATE OF f SKIP LOCKED
) first
WHERE (p.message_key, p.consumer, p.tenant_id, p.source) = (first.message_key, first.consumer, first.tenant_id, first.source)
RETURNING p.attempts, p.unended, p.seq`

	// uncountHead takes back the count of a try that was not made, or was interrupted.
	uncountHead = `
UPDATE {schema}.inbox_parked SET attempts = attempts - 1, unended = greatest(unended - 1, 0)
WHERE consumer = $1::text AND key_lock = $2::bigint AND seq = $3::bigint AND attempts > 0`

	// enterHead enters a message again if its entry has expired since it was parked. If the entry of a message without order has expired, a
	// copy may have been handled meanwhile. The copy has left a younger entry, and the row says so. The index finds that entry; a SELECT would
	// lock all partitions for as long as the handler runs.
	enterHead = `
WITH entered AS (
	INSERT INTO {schema}.inbox AS i (message_key, consumer, tenant_id, source)
	SELECT message_key, consumer, tenant_id, source FROM {schema}.inbox_parked
	WHERE consumer = $1::text AND key_lock = $2::bigint AND seq = $3::bigint
	ON CONFLICT (message_key, consumer, tenant_id, source) DO UPDATE SET processed_at = i.processed_at WHERE i.processed_at > $4::timestamptz
	RETURNING processed_at <> now() AS younger
)
SELECT EXISTS (SELECT FROM entered WHERE younger)`

	// removeHead removes the first message of a key, and the key if nothing is behind the message: the row says so. It must be preceded by the
	// key's lock, in a statement of its own: what was stored behind the message by then must be seen.
	removeHead = `
WITH gone AS (
	DELETE FROM {schema}.inbox_parked WHERE consumer = $1::text AND key_lock = $2::bigint AND seq = $3::bigint
), behind AS MATERIALIZED (
	SELECT p.topic FROM {schema}.inbox_parked p WHERE p.consumer = $1::text AND p.key_lock = $2::bigint AND p.seq <> $3::bigint
	ORDER BY p.seq LIMIT 1
), flows AS (
	DELETE FROM {schema}.inbox_key WHERE consumer = $1::text AND key_lock = $2::bigint AND NOT EXISTS (SELECT FROM behind) RETURNING 1
), leads AS (
	UPDATE {schema}.inbox_key k SET topic = b.topic FROM behind b
	WHERE k.consumer = $1::text AND k.key_lock = $2::bigint AND k.topic <> b.topic
)
SELECT EXISTS (SELECT FROM flows)`

	// failHead says when the first message of a key is tried again. It takes the message before the key, as everybody does: see runHead.
	failHead = `
WITH h AS MATERIALIZED (
	SELECT FROM {schema}.inbox_parked p WHERE consumer = $1::text AND key_lock = $2::bigint AND seq = $3::bigint
		AND EXISTS (SELECT FROM {schema}.inbox_key k WHERE k.consumer = $1::text AND k.key_lock = $2::bigint AND k.owner = $4::uuid)
	FOR UPDATE OF p
), k AS (
	UPDATE {schema}.inbox_key SET state = 'FAILED', owner = NULL, due_at = clock_timestamp() + $5::interval
	WHERE consumer = $1::text AND key_lock = $2::bigint AND owner = $4::uuid AND EXISTS (SELECT FROM h) RETURNING consumer, key_lock
)
UPDATE {schema}.inbox_parked p SET attempts = $6::integer, unended = 0, error_message = $7::text,
	failing_since = CASE WHEN $8::boolean THEN p.failing_since ELSE coalesce(p.failing_since, clock_timestamp()) END,
	unknown_since = CASE WHEN $8::boolean THEN coalesce(p.unknown_since, clock_timestamp()) ELSE p.unknown_since END
FROM k WHERE p.consumer = k.consumer AND p.key_lock = k.key_lock AND p.seq = $3::bigint`
)

// ran is how the try of a head ended.
type ran int

const (
	ranLast    ran = iota // it was handled, and nothing is behind it
	ranMore               // it was handled, something is behind it
	ranFailed             // it was not handled, and the key was handed back
	ranNothing            // another process has the key
)

// errOthers rolls back a unit that has nothing to do.
var errOthers = errors.New("inbox: another process has the key by now")

// runHead has the first message of a key handled, once.
//
// The message is handled once because its row is locked meanwhile, and its removal commits with the work of the handler, whichever process owns the
// key. A process that was suspended until its ownership ended finds the row locked or gone, or reads that it owns nothing.
//
// The lock of the key is taken when the handler has ended, and not before: until then messages can be stored behind this one, so a handler
// that takes long holds up no publisher and no receiver of its key. That is sound because the key does not flow: a unit that stores a message
// under the lock sees that the key stands still, and commits at once. No unit that runs another handler holds the lock, see handlePart. Only the
// release of the key needs it.
//
// All take the row of the message first, then the lock, then the row of the key; so none waits in a circle. The exception is a copy that comes
// after the entry of its message has expired, while the message runs: it has the lock and waits for the entry. PostgreSQL ends that circle,
// and the message or its copy is tried again.
func (i *Inbox) runHead(ctx context.Context, k store.ParkedKey) (ran, error) {
	var (
		counted count
		h       head
		w       *wrapped
		more    bool
		outcome string
	)
	if k.Doubtful {
		err := i.store.SQL.QueryRow(ctx, i.store.DB(ctx), countHead, []any{k.Consumer, k.Lock, i.store.Owner}, &counted.N, &counted.Unended, &counted.seq)
		if err != nil {
			return ranNothing, i.lostKey(ctx, k, counted, err)
		}
	}
	timed, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := newLimit(cancel, i.cfg.HandlerTimeout)
	defer limit.stop()
	err := i.store.Units.Do(timed, func(ctx context.Context, u *uow.Unit) (err error) {
		// The unit is run again after a conflict. If that run ends at the gate, it has not tried the message that the run before took.
		h, w = head{}, nil
		// Before the message and the lock of its key: all transactions take them in this order.
		if err = i.gateOf(ctx, u.DB(), k.Consumer); err != nil {
			return err
		}
		if h, err = i.takeHead(ctx, u.DB(), k); err != nil {
			return err
		}
		if w = i.handlerOf(k.Consumer, h.envelope.Topic); w == nil || w.leased || w.retry.isDeadly(counted.Earlier()) {
			return errOthers
		}
		var handled bool
		if err := i.store.SQL.QueryRow(ctx, u.DB(), enterHead, []any{k.Consumer, k.Lock, h.seq, h.parked}, &handled); err != nil {
			return err
		}
		outcome = outcomeDuplicate
		if !handled {
			outcome = outcomeHandled
			limit.reset(w.timeout)
			m := messaging.NewMessage(h.envelope, h.try(counted), nil)
			skip, err := w.watched(ctx, m.Topic, func(ctx context.Context) error { return w.parked.Handle(ctx, m) })
			if err != nil {
				return err
			}
			if skip {
				outcome = outcomeSkipped
			}
		}
		more, err = i.removeHead(ctx, u.DB(), k, h.seq)
		return err
	}, readCommitted())
	err = explainLate(timed, err)
	switch {
	case err == nil:
		i.count(ctx, k.Consumer, outcome)
		if more {
			return ranMore, nil
		}
		return ranLast, nil
	case h.seq == 0:
		return ranNothing, i.lostKey(ctx, k, counted, err)
	case w == nil:
		return ranFailed, i.leaveToOthers(ctx, k, counted, &h)
	case w.leased:
		return w.runLeased(ctx, k, h, counted)
	case errors.Is(err, errOthers):
		return ranFailed, w.giveUpHead(ctx, k, h, counted.N-1, errDeadly)
	case ctx.Err() != nil:
		return ranNothing, i.giveBack(context.WithoutCancel(ctx), k, counted, 0)
	}
	i.count(ctx, k.Consumer, outcomeFailed)
	return ranFailed, w.headFailed(ctx, k, h, counted, err)
}

// headFailed decides what becomes of the first message of a key, whose handler failed.
func (w *wrapped) headFailed(ctx context.Context, k store.ParkedKey, h head, counted count, cause error) error {
	n := h.try(counted)
	switch {
	case w.retry.waitsForBuild(h.unknown, cause):
		return w.awaitBuildHead(ctx, k, h, counted, cause)
	case needsBuild(cause):
		return w.giveUpHead(ctx, k, h, n-1, w.retry.unbuilt(cause))
	case hopeless(cause), w.retry.isExhausted(n, h.failing):
		return w.giveUpHead(ctx, k, h, n, cause)
	}
	return w.failHead(ctx, k, h, n, cause)
}

// count is a try that was counted before it was made. seq 0: it was not.
type count struct {
	store.Attempts
	seq int64
}

// try is the number of the present try, which was counted already if it had to be.
func (h head) try(counted count) int {
	if counted.seq == h.seq {
		return counted.N
	}
	return h.attempts + 1
}

// takeHead locks and reads the first message of a key.
func (i *Inbox) takeHead(ctx context.Context, tx bun.IDB, k store.ParkedKey) (h head, err error) {
	ctx, cancel := i.store.Bounded(ctx)
	defer cancel()
	found, err := pgsql.One(i.store.SQL.Query(ctx, tx, takeHead, k.Consumer, k.Lock, i.store.Owner), func(scan pgsql.Scan) (err error) {
		var unknown, failing float64
		h.key, h.envelope, err = store.ScanEnvelope(scan, &h.attempts, &h.seq, &h.parked, &unknown, &failing)
		h.unknown, h.failing = seconds(unknown), seconds(failing)
		return err
	})
	if !found {
		err = errors.Join(errOthers, err)
	}
	return h, err
}

// removeHead takes the lock of the key and removes its first message. more says that something is behind it.
func (i *Inbox) removeHead(ctx context.Context, tx bun.IDB, k store.ParkedKey, seq int64) (more bool, err error) {
	if _, err := i.store.SQL.Exec(ctx, tx, store.LockKey, k.Lock); err != nil {
		return false, err
	}
	var flows bool
	err = i.store.SQL.QueryRow(ctx, tx, removeHead, []any{k.Consumer, k.Lock, seq}, &flows)
	return !flows, err
}

// lostKey hands back a key whose head was not tried.
func (i *Inbox) lostKey(ctx context.Context, k store.ParkedKey, counted count, err error) error {
	back := i.giveBack(context.WithoutCancel(ctx), k, counted, i.cfg.PollInterval)
	if errors.Is(err, errOthers) || errors.Is(err, store.ErrGeneration) || errors.Is(err, sql.ErrNoRows) {
		return back
	}
	return fmt.Errorf("inbox: read a parked message of consumer %s: %w", k.Consumer, errors.Join(pgsql.Explain(err), back))
}

// giveBack hands back a key whose head was not tried, or not to the end.
func (i *Inbox) giveBack(ctx context.Context, k store.ParkedKey, counted count, wait time.Duration) (err error) {
	if counted.seq != 0 {
		_, err = i.store.SQL.Exec(ctx, i.store.DB(ctx), uncountHead, k.Consumer, k.Lock, counted.seq)
	}
	return errors.Join(err, i.table.Keys.HandBack(ctx, k, wait))
}

// leaveToOthers hands back a key whose first message no handler of this process is for: what was before it in its key was for one. The key is
// taken by its topic from now on, and not by this process. A message without topic cannot be told apart so, and waits for its turn each time.
func (i *Inbox) leaveToOthers(ctx context.Context, k store.ParkedKey, counted count, h *head) error {
	if h.envelope.Topic != "" {
		return i.giveBack(ctx, k, counted, 0)
	}
	return i.giveBack(ctx, k, counted, i.cfg.Retry.Delay)
}

// loud is the try whose failure is an error in the log. By then the pauses are minutes long.
const loud = 10

func (w *wrapped) failHead(ctx context.Context, k store.ParkedKey, h head, n int, cause error) error {
	wait := w.pause(n, cause)
	if noted, err := w.box.noteFailure(ctx, k, h, n, wait, cause); err != nil || !noted {
		return err
	}
	level, said := slog.LevelWarn, "oncebox: parked message failed, it is tried again after a pause"
	if n == loud {
		level, said = slog.LevelError, "oncebox: a message fails again and again, and what is behind it waits; it is tried until it is given up"
	}
	w.box.store.Log.Log(ctx, level, said, "consumer", k.Consumer, "topic", h.envelope.Topic, "type", h.envelope.Type,
		"id", h.envelope.ID, "tenant", h.envelope.TenantID, "ordering_key", h.envelope.OrderingKey(), "attempts", n, "wait", wait, "error", cause)
	return nil
}

// noteFailure says when the first message of a key is tried again. noted is false if the key is another's by now.
func (i *Inbox) noteFailure(ctx context.Context, k store.ParkedKey, h head, n int, wait time.Duration, cause error) (noted bool, err error) {
	rows, err := i.store.SQL.Exec(ctx, i.store.DB(ctx), failHead, k.Consumer, k.Lock, h.seq, i.store.Owner, wait, n,
		pgsql.CleanText(cause.Error()), needsBuild(cause))
	if err != nil {
		return false, fmt.Errorf("inbox: note the failed try of parked message %s: %w", h.key.MessageKey, err)
	}
	return rows > 0, nil
}
