package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// maxError is how much of an error is stored, in bytes.
const maxError = 2 << 10

// ErrNotDead means that there is no such dead letter: it was never one, or somebody was faster.
var ErrNotDead = errors.New("inbox: there is no such dead letter")

// MessageRef identifies a message of a consumer, parked or dead.
type MessageRef struct {
	// MessageKey is the id of the message if that is a UUIDv7, else a UUIDv8 made of its source and id.
	MessageKey string
	// Consumer is the name of the consumer. TenantID and Source are those of the message.
	Consumer, TenantID, Source string
}

// args are those of the statements about one message.
func (k MessageRef) args() ([]any, error) {
	parsed, err := uuid.Parse(k.MessageKey)
	if err != nil {
		return nil, fmt.Errorf("MessageRef.MessageKey %q is not a UUID: %w", k.MessageKey, err)
	}
	return []any{parsed.String(), k.Consumer, k.TenantID, k.Source}, nil
}

// DeadLetter is a message that a consumer gave up.
type DeadLetter struct {
	Key MessageRef
	// Envelope is the message as it came. Only identifiers that cannot be stored were made readable.
	Envelope event.Envelope
	// Attempts counts its tries, as far as they are known.
	Attempts int
	// Error is the last error, at most 2 KiB of it, in valid UTF-8 and without NUL; beyond that it may be any text.
	Error string
	// DiedAt is when it was given up.
	DiedAt time.Time
	// Holds says that the later messages of its key wait until it is replayed or discarded.
	Holds bool
}

const (
	storeDead = `
INSERT INTO {schema}.inbox_dead (` + messageColumns + `, key_lock, attempts, error_message, holds, seq)
VALUES (` + messageValues + `, $23::boolean, coalesce($24::bigint, nextval('{schema}.inbox_seq')))
` + diedAgain

	// diedAgain: the entry of a dead letter has expired, and its message came again. It stays in the key that it holds.
	diedAgain = `
ON CONFLICT (message_key, consumer, tenant_id, source) DO UPDATE
SET attempts = inbox_dead.attempts + excluded.attempts, error_message = excluded.error_message, died_at = excluded.died_at,
	holds = inbox_dead.holds OR excluded.holds,
	key_lock = CASE WHEN inbox_dead.holds THEN inbox_dead.key_lock ELSE excluded.key_lock END,
	seq = CASE WHEN inbox_dead.holds THEN inbox_dead.seq ELSE excluded.seq END`

	// listedColumns are those of a list: all but the payloads, which may be a megabyte each.
	listedColumns = `message_key, consumer, tenant_id, source, message_id, event_type, topic, aggregate_type, aggregate_id,
	aggregate_version, sequence, schema_id, schema_version, routing_key, content_type, occurred_at, event_metadata, NULL::bytea AS payload, ordering_key`

	deadColumns = envelopeColumns + `, attempts, error_message, died_at, holds`

	listDead = `
SELECT ` + deadColumns + ` FROM (SELECT ` + listedColumns + `, attempts, error_message, died_at, holds FROM {schema}.inbox_dead) d
WHERE %s ORDER BY d.died_at, d.message_key, d.consumer, d.tenant_id, d.source LIMIT %s`

	showDead = `
SELECT ` + deadColumns + ` FROM {schema}.inbox_dead
WHERE message_key = $1::uuid AND consumer = $2::text AND tenant_id = $3::text AND source = $4::text`

	countDead = `SELECT count(*) FROM {schema}.inbox_dead d WHERE %s`
)

// defaultPage is the size of a page whose limit is not given.
const defaultPage = 100

// death is what a dead letter has besides its message.
type death struct {
	attempts int
	cause    error
	holds    bool   // the later messages of its key wait for it
	seq      *int64 // its place in its key; nil: the last
}

func (i *Inbox) storeDead(ctx context.Context, tx bun.IDB, l letter, d death) error {
	args, err := messageArgs(l.id, l.m, max(d.attempts, 1), errorText(d.cause))
	if err != nil {
		return err
	}
	_, err = i.sql.Exec(ctx, tx, storeDead, append(args, d.holds, d.seq)...)
	return explain(err)
}

// errorText makes an error fit for a column.
func errorText(err error) string { return cleanText(err.Error()) }

func cleanText(text string) string {
	return cut(strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD"), maxError)
}

// Dead lists the dead letters that the filter selects, oldest first, without their payloads. A page has at most limit of
// them (0: 100) and begins after the last one of the page before (nil: from the start). Only its DiedAt and Key count.
func (i *Inbox) Dead(ctx context.Context, filter DeadFilter, after *DeadLetter, limit int) ([]DeadLetter, error) {
	if err := filter.Validate(); err != nil {
		return nil, err
	}
	statement, args := deadPage(filter, after, limit)
	list, err := pgsql.Collect(i.adHoc().Query(ctx, i.units.DB(ctx), statement, args...), scanDead)
	return list, wrapErr("list dead letters", err)
}

func deadPage(filter DeadFilter, after *DeadLetter, limit int) (statement string, args []any) {
	if limit <= 0 {
		limit = defaultPage
	}
	w := filter.where()
	if after != nil {
		w.Add("(d.died_at, d.message_key, d.consumer, d.tenant_id, d.source) > (%s::timestamptz, %s::uuid, %s::text, %s::text, %s::text)",
			after.DiedAt, after.Key.MessageKey, after.Key.Consumer, after.Key.TenantID, after.Key.Source)
	}
	bound := w.Arg(limit)
	return fmt.Sprintf(listDead, w, bound), w.Args
}

// DeadLetter returns one dead letter with its payload, or [ErrNotDead].
func (i *Inbox) DeadLetter(ctx context.Context, key MessageRef) (d DeadLetter, err error) {
	return i.deadLetter(ctx, i.units.DB(ctx), key)
}

func (i *Inbox) deadLetter(ctx context.Context, db bun.IDB, key MessageRef) (d DeadLetter, err error) {
	args, err := key.args()
	if err != nil {
		return d, fmt.Errorf("inbox: show a dead letter: %w", err)
	}
	found, err := pgsql.One(i.sql.Query(ctx, db, showDead, args...), func(scan pgsql.Scan) error { return scanDead(scan, &d) })
	if err == nil && !found {
		return d, wrapErr("show "+key.MessageKey+" of consumer "+key.Consumer, ErrNotDead)
	}
	return d, wrapErr("show a dead letter", err)
}

// CountDead counts the dead letters that the filter selects.
func (i *Inbox) CountDead(ctx context.Context, filter DeadFilter) (int64, error) {
	if err := filter.Validate(); err != nil {
		return 0, err
	}
	w := filter.where()
	var n int64
	err := i.adHoc().QueryRow(ctx, i.units.DB(ctx), fmt.Sprintf(countDead, w), w.Args, &n)
	return n, wrapErr("count dead letters", err)
}

func scanDead(scan pgsql.Scan, d *DeadLetter) (err error) {
	d.Key, d.Envelope, err = scanEnvelope(scan, &d.Attempts, &d.Error, &d.DiedAt, &d.Holds)
	return err
}

// adHoc runs what operators ask for: planned anew each time, because the best index depends on which consumer or tenant it
// is, and because tables that are nearly empty most of the time are full just then.
func (i *Inbox) adHoc() *pgsql.Runner { return i.sql.AdHoc() }

func wrapErr(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("inbox: %s: %w", what, pgsql.Explain(err))
}
