package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/unit"
	"github.com/oncebox/oncebox/uow"
)

// Entry is the result of entering a message.
type Entry int

const (
	// Duplicate: the message was entered before, by a transaction that has committed.
	Duplicate Entry = iota
	// Fresh: the message is to be handled.
	Fresh
	// Behind: other messages of its key wait, so it has to wait behind them.
	Behind
	// Early: it is a live message, and its read model is being rebuilt.
	Early
	// Passed: it was fresh, and was then skipped, see messaging.Skip.
	Passed
)

// entryTable has an entry for each message that a consumer has handled, or parked.
type entryTable struct{ *Handle }

// Enter takes the lock of the message's key, if it has one, enters the message, and checks whether its key flows: in one round trip
// together with BEGIN.
//
// The check needs a snapshot that is taken after the lock was acquired. Otherwise message 2, which waited for the lock while message 1 was
// handled, would not see that message 1 was parked, and would overtake it. Therefore it is an SQL function: at READ COMMITTED each
// statement within it has a snapshot of its own (PostgreSQL 38.7, Function Volatility Categories). The insert of the entry needs no new
// snapshot: the unique index sees what was committed meanwhile. While a copy of the message is being handled, the lock or the index makes
// this call wait.
func (t entryTable) Enter(ctx context.Context, u *uow.Unit, id Identity) (Entry, error) {
	n, err := t.CountRows(ctx, u, enterOne,
		pgtype.UUID{Bytes: id.Key, Valid: true}, (*text)(&id.Consumer), (*text)(&id.Tenant), (*text)(&id.Source), id.Lock, t.LockMillis())
	if err != nil {
		return Duplicate, fmt.Errorf("inbox: enter message %s of consumer %s: %w", id.Key, id.Consumer, Explain(err))
	}
	if became := Entry(n); became == Fresh || became == Behind {
		unit.Of(ctx).ProvedBy(t.Proof(id))
	}
	return Entry(n), nil
}

// text is a parameter that pgx takes from where it is. It would copy a *string to an object of its own.
type text string

// TextValue implements [pgtype.TextValuer].
func (t *text) TextValue() (pgtype.Text, error) {
	return pgtype.Text{String: string(*t), Valid: true}, nil
}

// Awaited are messages that somebody waits for. All slices have the same length.
type Awaited struct {
	Keys, Tenants, Sources, Topics []string
	// Named is set if the caller has chosen the topics. Otherwise topics to which the consumer is not subscribed are left out.
	Named bool
}

// Settlement is how far a consumer is with messages: how many are for it, how many of these it has handled, and how many are its dead letters.
type Settlement struct{ Due, Handled, Dead int }

// Settled returns how far a consumer, or the present generation of a read model, is with the messages.
func (t entryTable) Settled(ctx context.Context, db bun.IDB, consumer string, a Awaited) (s Settlement, err error) {
	err = t.SQL.QueryRow(ctx, db, countSettled, []any{a.Keys, a.Tenants, a.Sources, consumer, a.Topics, a.Named}, &s.Due, &s.Handled, &s.Dead)
	return s, err
}

// Proof finds out whether a unit has committed, after the answer to its COMMIT was lost: it looks for the entry that the unit's own
// transaction made. An entry of another transaction means that another process has handled a copy. After a crash of the server two
// transactions may have the same id by chance. Then the answer is wrong about the transaction, and still right about the message: it was
// handled once.
func (t entryTable) Proof(id Identity) unit.Proof {
	return func(ctx context.Context, db bun.IDB, xid string) (found bool, err error) {
		err = t.SQL.QueryRow(ctx, db, isEntered, []any{id.Key.String(), id.Consumer, id.Tenant, id.Source, xid}, &found)
		return found, err
	}
}

// ErrLocked means that another process handles a message of the key and has not ended within LockTimeout. It may hang. Waiting longer would
// occupy a slot and a connection that other keys can use.
var ErrLocked = errors.New("a message of its key is being handled elsewhere, which takes long")

// Explain adds to the error of a statement what it means for the message: ErrLocked, or that the message cannot be stored.
func Explain(err error) error {
	switch {
	case pgerr.Code(err) == pgerr.LockNotAvailable:
		return fmt.Errorf("%w: %w", ErrLocked, err)
	case refusesContent(err):
		return &unstorableError{err}
	default:
		return pgerr.Explain(err)
	}
}

const isEntered = `
SELECT EXISTS (SELECT FROM {schema}.inbox WHERE message_key = $1::uuid AND consumer = $2 AND tenant_id = $3 AND source = $4
	AND xmin::text = mod($5::text::numeric, 4294967296)::text)`

// countSettled counts the messages that are for the consumer, the handled ones (entered, and not parked), and its dead letters.
// A consumer without any topic receives its messages in a way of its own, so all are for it.
const countSettled = `
SELECT count(*), count(i.message_key) FILTER (WHERE p.message_key IS NULL), count(d.message_key)
FROM unnest($1::uuid[], $2::text[], $3::text[], $5::text[]) u(key, tenant, source, topic)
CROSS JOIN (SELECT coalesce((SELECT consumer FROM {schema}.inbox_read_model WHERE name = $4::text), $4::text) AS consumer) c
LEFT JOIN {schema}.inbox i ON i.message_key = u.key AND i.consumer = c.consumer AND i.tenant_id = u.tenant AND i.source = u.source
LEFT JOIN {schema}.inbox_parked p ON p.message_key = u.key AND p.consumer = c.consumer AND p.tenant_id = u.tenant AND p.source = u.source
LEFT JOIN {schema}.inbox_dead d ON d.message_key = u.key AND d.consumer = c.consumer AND d.tenant_id = u.tenant AND d.source = u.source
WHERE $6::boolean
	OR EXISTS (SELECT FROM {schema}.inbox_topic s WHERE s.topic = u.topic AND s.consumer = $4 AND s.subscribed)
	OR NOT EXISTS (SELECT FROM {schema}.inbox_topic s WHERE s.consumer = $4 AND s.subscribed)`

// The lock includes the name of the schema, so that equal names in two schemas of a database do not wait for each other.
const enterOne = `
SELECT pg_current_xact_id()::text FROM {schema}.inbox_enter($1::uuid, $2::text, $3::text, $4::text, $5::bigint, $6::integer)`

// CountRows sends a statement that returns the id of the transaction in each row. It returns the number of rows, which encodes the result.
func (t entryTable) CountRows(ctx context.Context, u *uow.Unit, statement string, args ...any) (n int64, err error) {
	place, err := t.SQL.In(ctx, u.DB())
	if err != nil {
		return 0, err
	}
	s := &struct { // together, because each would be an object of its own
		batch pgsql.Batch
		xid   string
		n     int64
	}{}
	s.batch.Query(func(rows *pgsql.Result) error {
		for rows.Next() {
			if err := rows.Scan(&s.xid); err != nil {
				return err
			}
			s.n++
		}
		return rows.Err()
	}, place.Text(statement), args...)
	s.batch.Within = t.Patience()
	if err = unit.Of(ctx).Send(ctx, &s.batch); err == nil && s.xid != "" {
		unit.Of(ctx).Identified(s.xid)
	}
	return s.n, err
}
