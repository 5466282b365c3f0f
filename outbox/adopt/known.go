package adopt

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// known changes a guess for the tables of libraries, which are known by their columns.
func (g *guess) known(ctx context.Context, db querier) error {
	switch {
	case g.has("offset", "uuid", "payload", "metadata", "transaction_id"):
		return g.watermill(ctx, db)
	case g.has("kind", "args", "state", "finalized_at", "scheduled_at"):
		g.river()
	case g.has("aggregatetype", "aggregateid", "type", "payload"):
		g.debezium()
	case g.find("sequencenumber") != nil && g.find("messageid") != nil && g.find("outboxid") != nil && g.find("destinationaddress") != nil:
		g.massTransit()
	case g.has("id", "created_at", "scheduled_at", "metadata", "payload", "times_attempted"):
		g.oagudo()
	}
	return nil
}

func (g *guess) has(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { _, err := g.table.column(name); return err != nil })
}

// watermill is the default schema of watermill-sql. With its forwarder the payload is an envelope, and the topic is in there.
func (g *guess) watermill(ctx context.Context, db querier) error {
	m := g.m
	topic := strings.TrimPrefix(g.table.name, "watermill_")
	m.ID, m.Topic, m.Key, m.Type, m.Order = "{uuid}", topic, "", "", []string{"offset"}
	m.Unsent, m.Mark, m.Delete = nil, nil, true
	m.Where = `NOT EXISTS (SELECT FROM ` + ident(g.table.schema) + `.` + ident("watermill_offsets_"+topic) + ` o
  WHERE o.consumer_group = '' AND (transaction_id, "offset") <= (o.last_processed_transaction_id, o.offset_acked))`
	g.notes = []string{
		"watermill-sql: where leaves out rows that the subscriber has acknowledged; it is of the consumer group ''. They stay in the table.",
		"key: write which entry of the metadata is the key of the order, for example \"{metadata.partition_key}\". Without a key the events have no order.",
	}
	payload, err := (&compiler{table: g.table}).reference(&part{column: "payload"})
	if err != nil {
		return err
	}
	var envelope bool
	err = db.QueryRowContext(ctx, "SELECT "+payload+" LIKE '%\"destination_topic\"%' FROM "+g.table.sql()+" r LIMIT 1", pgx.QueryExecModeExec).Scan(&envelope)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return wrap("look at a payload", err)
	}
	if envelope {
		m.ID, m.Topic, m.Payload, m.Base64, m.Metadata = "{payload.uuid}", "{payload.destination_topic}", "{payload.payload}", true, "{payload.metadata}"
		m.ContentType = "application/json"
		g.notes[1] = strings.Replace(g.notes[1], "{metadata.", "{payload.metadata.", 1)
	}
	return nil
}

// river is the table of jobs of river.
func (g *guess) river() {
	m := g.m
	m.ID, m.Topic, m.Type, m.Payload, m.Metadata, m.OccurredAt = "{id}", "events", "{kind}", "{args}", "", "{created_at}"
	m.Order = []string{"id"}
	m.Unsent = map[string]any{"state": []any{"available", "pending", "retryable", "running", "scheduled"}}
	m.Mark = map[string]any{"state": "completed", "finalized_at": now}
	m.Where = "kind IN ('write', 'the', 'kinds') AND (state <> 'scheduled' OR scheduled_at <= clock_timestamp())"
	g.notes = []string{
		"river: where has to name the kinds of jobs that publish an event. Other jobs stay river's.",
		"topic, aggregate_type, aggregate_id: write what the worker of such a job has published, for example \"{args.order_id}\".",
	}
}

// debezium is the table of Debezium's outbox event router.
func (g *guess) debezium() {
	g.m.Topic = "outbox.event.{aggregatetype}"
	g.notes = slices.DeleteFunc(g.notes, func(note string) bool { return strings.HasPrefix(note, "topic:") })
	g.notef("topic: this is the default of Debezium's outbox event router (route.topic.replacement).")
}

// oagudo is the table of github.com/oagudo/outbox.
func (g *guess) oagudo() {
	g.m.ContentType = "application/json"
	g.m.Topic = "{metadata.topic}"
	g.notes = slices.DeleteFunc(g.notes, func(note string) bool { return strings.HasPrefix(note, "topic:") || strings.HasPrefix(note, "key:") })
	g.notef("topic, type, key: the publisher knows them. Write which entries of the metadata have them, for example \"{metadata.key}\", or constants.")
}

// massTransit is the table of MassTransit's outbox with Entity Framework. Its names may be in Pascal case or in snake case.
func (g *guess) massTransit() {
	m, topic := g.m, ""
	m.ContentType = "application/vnd.masstransit+json"
	m.Where = ident(g.find("outboxid").name) + " IS NOT NULL"
	m.Unsent, m.Mark, m.Delete = nil, nil, true
	g.notes = slices.DeleteFunc(g.notes, func(note string) bool { return !strings.HasPrefix(note, "order:") })
	if payload := g.find(payloadNames); payload != nil {
		topic = `, for example "{` + quotedName(payload.name) + `.message.orderId}"`
	}
	g.notef("topic: the table has the address of an exchange or a queue. Write the topic that consumers read.")
	g.notef("key: write aggregate_type and aggregate_id%s. Without them the events have no order.", topic)
	g.notef("where: rows without OutboxId are those of consumers with an inbox, and MassTransit sends them itself.")
	g.notef("payload: it is MassTransit's envelope. A part of it is the bare message, with content_type application/json.")
}
