package parked

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// Message is a message that waits in the database, because it failed, because it is behind a message that failed, or because the messages of
// its consumer are stored first: see inbox.StoreFirst. Without a broker all messages are stored.
type Message struct {
	Key operator.MessageRef
	// Envelope is the message as it came, without its payload. Only identifiers that cannot be stored were made readable.
	Envelope event.Envelope
	// OrderingKey is the key that does not flow, "" for a message without order.
	OrderingKey string
	// State is that of the key.
	State KeyState
	// First says that it is the next message of its key. Only such a message can be given to RetryNow and GiveUp.
	First bool
	// Attempts counts its tries. It is 0 for a message that was not tried yet.
	Attempts int
	// Error is the last error, at most 2 KiB of it. Fingerprint is that of the error, see package operator/failures; "" if there was none.
	Error, Fingerprint string
	// FailedBy is the process whose try failed last, and its version if that is known. "": it has not failed.
	FailedBy string
	// FailingSince is when it began to fail, or to wait for a build that knows it. Zero if it has not failed.
	FailingSince time.Time
	// ParkedAt is when it was stored, by the clock of the database.
	ParkedAt time.Time
	// DueAt is when the first message of the key may run next or, while it is being handled, when another process may take it over. Zero if
	// an operator has to decide.
	DueAt time.Time
	// KeyLock and Seq are its position in a list, for the next page. Within a key, Seq grows with the time of arrival.
	KeyLock, Seq int64
}

// KeyState is why a key does not flow: the state of its first message.
type KeyState string

// The states of keys.
const (
	KeyWaiting KeyState = store.KeyWaiting // it runs as soon as possible: it was never tried, or an operator wants another try
	KeyFailed  KeyState = store.KeyFailed  // it failed, and is tried again after a pause
	KeyDead    KeyState = store.KeyDead    // it is a dead letter: the messages behind it wait for an operator
)

// Filter selects the parked messages that match every field that is set. The zero filter selects all.
type Filter struct {
	Consumer, TenantID, OrderingKey string
	// Fingerprints are compared with that of the message's last error (package operator/failures), by an index. Empty: any.
	Fingerprints []string
	// Topic and Type are compared with the message, and Error is searched in the text of its last error. None of them has an index.
	Topic, Type, Error string
	// State is that of their key.
	State KeyState
	// Behind selects the messages that wait behind this dead letter, which holds its key. The zero value selects all.
	Behind operator.MessageRef
	// FirstOnly selects at most one message per key: its first, if that matches.
	FirstOnly bool
}

// Validate names every field that cannot be used.
func (f Filter) Validate() error {
	errs := []error{
		event.ValidateIdentifier("inbox: parked.Filter.Consumer", f.Consumer),
		event.ValidateIdentifier("inbox: parked.Filter.TenantID", f.TenantID),
		event.ValidateIdentifier("inbox: parked.Filter.Topic", f.Topic),
		event.ValidateIdentifier("inbox: parked.Filter.Type", f.Type),
	}
	if f.Behind != (operator.MessageRef{}) {
		if _, err := store.RefArgs(f.Behind); err != nil {
			errs = append(errs, fmt.Errorf("inbox: parked.Filter.Behind: %w", err))
		}
	}
	switch f.State {
	case "", KeyWaiting, KeyFailed, KeyDead:
	default:
		errs = append(errs, fmt.Errorf("inbox: parked.Filter.State is %q: give KeyWaiting, KeyFailed or KeyDead", f.State))
	}
	return errors.Join(errs...)
}

// where returns the filter as SQL: w has the conditions on a key k and its message p, ofKey the conditions on the messages x of a key. The
// arguments follow the statement's own args.
func (f Filter) where(args ...any) (w *pgsql.Where, ofKey string) {
	w = &pgsql.Where{Args: args}
	for _, c := range []struct{ column, value string }{
		{"k.consumer", f.Consumer}, {"k.tenant_id", f.TenantID}, {"k.ordering_key", f.OrderingKey}, {"k.state", string(f.State)},
	} {
		if c.value != "" {
			w.Add(c.column+" = %s::text", c.value)
		}
	}
	if b := f.Behind; b != (operator.MessageRef{}) {
		w.Add("(k.consumer, k.key_lock) = (SELECT d.consumer, d.key_lock FROM {schema}.inbox_dead d WHERE d.message_key = %s::uuid "+
			"AND d.consumer = %s::text AND d.tenant_id = %s::text AND d.source = %s::text AND d.holds)", b.MessageKey, b.Consumer, b.TenantID, b.Source)
	}
	// This follows from the comparison below. It lets the planner begin with the index of the causes: without it, each key that failed is looked at, and
	// 5 of 50,000 keys took two seconds.
	if len(f.Fingerprints) > 0 {
		w.Add("(k.consumer, k.key_lock) IN (SELECT f.consumer, f.key_lock FROM {schema}.inbox_parked f "+
			"WHERE f.fingerprint = ANY (%s::text[]) AND f.fingerprint <> '')", f.Fingerprints)
	}
	// The filter belongs inside the lateral query, so that a key with a thousand messages gives the matching
	// ones. With FirstOnly it belongs outside: inside, the second message of a key could pass for the first.
	of := &pgsql.Where{Args: w.Args}
	message := "x."
	if f.FirstOnly { // the first message of a key is chosen without the filter, and then compared with it
		of, message = w, "p."
	}
	for _, c := range []struct{ column, value string }{{"topic", f.Topic}, {"event_type", f.Type}} {
		if c.value != "" {
			of.Add(message+c.column+" = %s::text", c.value)
		}
	}
	if len(f.Fingerprints) > 0 {
		of.Add(message+"fingerprint = ANY (%s::text[])", f.Fingerprints)
	}
	if f.Error != "" {
		// The stored texts were cleaned, so the text to search for is cleaned as well.
		of.Add("strpos("+message+"error_message, %s::text) > 0", pgsql.CleanText(f.Error))
	}
	if f.FirstOnly {
		return w, "true"
	}
	w.Args = of.Args
	return w, of.String()
}

// listParked reads key by key, and of each key at most as many messages as a page has.
const listParked = `
SELECT {message read}, attempts, error_message, fingerprint, failed_by, failing, parked_at, key_lock, seq, key_order, state, due_at, first
FROM (
	SELECT p.*, k.key_lock, coalesce(k.ordering_key, '') AS key_order, k.state, nullif(k.due_at, 'infinity') AS due_at,
		k.state <> 'DEAD' AND p.seq = (
			SELECT min(seq) FROM {schema}.inbox_parked f WHERE f.consumer = k.consumer AND f.key_lock = k.key_lock) AS first
	FROM {schema}.inbox_key k CROSS JOIN LATERAL (
		SELECT {message but payload}, attempts, error_message, fingerprint, failed_by,
	coalesce(failing_since, unknown_since) AS failing, parked_at, seq FROM {schema}.inbox_parked x
		WHERE x.consumer = k.consumer AND x.key_lock = k.key_lock AND %s ORDER BY x.seq LIMIT %s) p
	WHERE %s ORDER BY k.consumer, k.key_lock, p.seq LIMIT %s) l`

// List lists the parked messages that the filter selects, messages of a key together and in their order. A page has at most limit of them
// (0: 100). after is the last message of the page before, nil for the first page; only its consumer, KeyLock and Seq are used.
func (m *Messages) List(ctx context.Context, filter Filter, after *Message, limit int) ([]Message, error) {
	if err := filter.Validate(); err != nil {
		return nil, err
	}
	statement, args := page(filter, after, limit)
	list, err := pgsql.Collect(m.h.AdHoc().Query(ctx, m.h.DB(ctx), statement, args...), func(scan pgsql.Scan, p *Message) error {
		var due, failing sql.NullTime
		key, e, err := store.ScanEnvelope(scan,
			&p.Attempts, &p.Error, &p.Fingerprint, &p.FailedBy, &failing, &p.ParkedAt, &p.KeyLock, &p.Seq, &p.OrderingKey, &p.State, &due, &p.First)
		p.Key, p.Envelope, p.DueAt, p.FailingSince = key, e, due.Time, failing.Time
		return err
	})
	return list, store.Wrap("list parked messages", err)
}

// countTenants counts the first messages of at most 10,000 keys.
const countTenants = `
SELECT tenant_id, count(*) FROM (
	SELECT k.tenant_id FROM {schema}.inbox_key k CROSS JOIN LATERAL (
		SELECT * FROM {schema}.inbox_parked x WHERE x.consumer = k.consumer AND x.key_lock = k.key_lock ORDER BY x.seq LIMIT 1) p
	WHERE %s LIMIT 10000) t
GROUP BY tenant_id ORDER BY 2 DESC, 1 LIMIT %s`

// Tenant is a tenant with the number of its messages.
type Tenant struct {
	TenantID string
	Messages int64
}

// Tenants counts the messages that the filter selects for each tenant, at most one message per key (FirstOnly is set), and returns at most limit tenants,
// the one with the most messages first. It counts among the first 10,000.
func (m *Messages) Tenants(ctx context.Context, filter Filter, limit int) ([]Tenant, error) {
	if err := filter.Validate(); err != nil {
		return nil, err
	}
	statement, args := tenants(filter, limit)
	list, err := pgsql.Collect(m.h.AdHoc().Query(ctx, m.h.DB(ctx), statement, args...), func(scan pgsql.Scan, t *Tenant) error {
		return scan(&t.TenantID, &t.Messages)
	})
	return list, store.Wrap("count parked messages by tenant", err)
}

// tenants makes the statement that counts by tenant.
func tenants(f Filter, limit int) (statement string, args []any) {
	f.FirstOnly = true
	w, _ := f.where()
	bound := w.Arg(limit)
	return fmt.Sprintf(countTenants, w, bound), w.Args
}

// page makes the statement of a page. The position is compared as a row (consumer, key_lock), which the
// index of the keys supports.
func page(f Filter, after *Message, limit int) (statement string, args []any) {
	if limit <= 0 {
		limit = store.DefaultPage
	}
	w, ofKey := f.where()
	perKey := limit
	if f.FirstOnly {
		perKey = 1
	}
	switch {
	case after == nil:
	case f.FirstOnly:
		w.Add("(k.consumer, k.key_lock) > (%s::text, %s::bigint)", after.Key.Consumer, after.KeyLock)
	// The last key of the page before may have more messages, so it is read again from its position on.
	default:
		w.Add("(k.consumer, k.key_lock) >= (%s::text, %s::bigint)", after.Key.Consumer, after.KeyLock)
		ofKey += fmt.Sprintf(" AND (x.consumer, x.key_lock, x.seq) > (%s::text, %s::bigint, %s::bigint)",
			w.Arg(after.Key.Consumer), w.Arg(after.KeyLock), w.Arg(after.Seq))
	}
	inner, bound := w.Arg(perKey), w.Arg(limit)
	return fmt.Sprintf(listParked, ofKey, inner, w, bound), w.Args
}
