package inbox

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// Inbox remembers which consumer has handled which message. It is safe for concurrent use.
type Inbox struct {
	units *uow.Manager
	cfg   Config
	sql   *pgsql.Runner

	log      *slog.Logger
	messages metric.Int64Counter
}

// New returns an inbox whose entries are made in the units of m.
func New(m *uow.Manager, cfg *Config) *Inbox {
	c := cfg.withDefaults()
	meter := otelx.Meter(c.MeterProvider, "inbox")
	return &Inbox{
		units: m, cfg: c, sql: pgsql.New(c.Schema, c.Pooler),
		log:      otelx.Logger(c.Logger),
		messages: otelx.Counter(meter, "oncebox.inbox.messages", "Messages that came to a consumer, by outcome"),
	}
}

// Wrap returns a handler that has next handle each message once; see the package documentation. The name of the
// consumer is part of the key: it must stay the same over releases, and different consumers must have different ones.
//
// next runs inside the unit: [uow.FromContext] and [uow.Manager.DB] give it the transaction. What it returns decides as
// [messaging.Handler] says, except that Permanent errors make a dead letter.
//
// It panics if the name is empty or not an identifier: a mistake in the program, found at its start.
func (i *Inbox) Wrap(consumer string, next messaging.Handler) messaging.Handler {
	if err := event.ValidateIdentifier("consumer", consumer); consumer == "" || err != nil {
		panic(fmt.Sprintf("inbox: Wrap: the consumer's name %q is empty or not an identifier", consumer))
	}
	return &wrapped{Inbox: i, consumer: consumer, next: next}
}

// claim enters the message. false: it is entered already, by a transaction that has committed.
//
// One round trip takes the lock of the message's key, if it has one, and inserts. The statement's snapshot is older than
// the lock, and that does no harm: at READ COMMITTED the unique index sees rows that were committed meanwhile, and the
// handler's statements have snapshots of their own. A copy that is being handled right now is waited for, by the lock or
// by the index.
func (i *Inbox) claim(ctx context.Context, tx bun.IDB, id identity) (bool, error) {
	n, err := i.sql.Exec(ctx, tx, claim, id.key.String(), id.consumer, id.tenant, id.source, id.lock)
	if err != nil {
		return false, fmt.Errorf("inbox: enter message %s of consumer %s: %w", id.key, id.consumer, pgsql.Explain(err))
	}
	return n == 1, nil
}

// The lock is per table, so that equal names in two schemas of a database do not wait for each other. A message without
// a key has lock NULL, for which the function is not called. The INSERT reads n: a CTE that nobody reads is not executed.
const claim = `
WITH l AS MATERIALIZED (
	SELECT count(pg_advisory_xact_lock(hashint8extended($5::bigint, '{schema}.inbox'::regclass::oid::bigint))) AS n
)
INSERT INTO {schema}.inbox (message_key, consumer, tenant_id, source)
SELECT $1::uuid, $2::text, $3::text, $4::text FROM l WHERE l.n >= 0
ON CONFLICT DO NOTHING`

// count notes what became of a message.
func (i *Inbox) count(ctx context.Context, consumer, outcome string) {
	i.messages.Add(ctx, 1, metric.WithAttributes(attribute.String("consumer", consumer), attribute.String("outcome", outcome)))
	trace.SpanFromContext(ctx).SetAttributes(attribute.String("oncebox.inbox.outcome", outcome))
}
