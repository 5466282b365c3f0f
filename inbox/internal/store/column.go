package store

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/operator"
)

// column is a column of a message, as the tables of parked messages and of dead letters have it: its name, its value, and how it is read. The lists
// of columns in statements are made of it, see lists.
//
// A column that travels from the outbox to consumers needs, in addition to its places in the outbox (see the type column of internal/outboxdb):
//
//   - a constant in messaging/pulsar/internal/wire/wire.go and a line in texts or numbers of field.go: the property of the message
//   - its length in size of messaging/memory/topic.go
//   - a line in the table inbox_dead (migrations/sql); inbox_parked copies it
//   - an entry in columns, here, and a line in [Validate] if it is a name or an id
//   - a value in "every field" of messaging/messagingtest/envelope.go, whose test fails without it: then the suite checks that each adapter delivers it
//
// The views of SQL have it then. The pages and commands for people name their columns: console/letter.go, console/event.go, ops/life.go, ops/lives.go and
// cmd/oncebox/internal/{dead,events}.
type column struct {
	name, typ string
	// stored is the expression that is stored for a parameter, and read is the expression that a message is read by; %s is the parameter or the name.
	stored, read string
	// absent is what a list has for a message of which only the key is known.
	absent string
	// value returns the parameter for one message, and values the array for many.
	value  func(m *row) any
	values func(list []row) any
	// target returns the variable for [sql.Rows.Scan].
	target func(m *row) any
	// free is the text that may be anything and is stored in a readable form; nil for other columns.
	free func(e *event.Envelope) *string
}

// row is a message with its identity, on its way into a table or out of it.
type row struct {
	ref operator.MessageRef
	event.Envelope
	ordering string       // the ordering key as stored
	occurred sql.NullTime // as read
	metadata []byte       // as read
}

// columns begin with the key of a message and end with the payload.
var columns = []column{ //nolint:gochecknoglobals // a constant
	keyed("message_key", "uuid", func(m *row) *string { return &m.ref.MessageKey }),
	keyed("consumer", "text", func(m *row) *string { return &m.ref.Consumer }),
	keyed("tenant_id", "text", func(m *row) *string { return &m.ref.TenantID }),
	keyed("source", "text", func(m *row) *string { return &m.ref.Source }),
	identifier("message_id", func(e *event.Envelope) *string { return &e.ID }),
	identifier("event_type", func(e *event.Envelope) *string { return &e.Type }),
	identifier("topic", func(e *event.Envelope) *string { return &e.Topic }),
	optional(plain("ordering_key", "text", func(m *row) string { return readable(m.ordering) }, func(m *row) any { return &m.ordering })),
	identifier("aggregate_type", func(e *event.Envelope) *string { return &e.AggregateType }),
	identifier("aggregate_id", func(e *event.Envelope) *string { return &e.AggregateID }),
	number("aggregate_version", func(e *event.Envelope) *int64 { return &e.AggregateVersion }),
	number("sequence", func(e *event.Envelope) *int64 { return &e.Sequence }),
	optional(identifier("schema_id", func(e *event.Envelope) *string { return &e.SchemaID })),
	plain("schema_version", "integer", func(m *row) int { return storedVersion(m.SchemaVersion) }, func(m *row) any { return &m.SchemaVersion }),
	optional(freeText("routing_key", func(e *event.Envelope) *string { return &e.RoutingKey })),
	freeText("content_type", func(e *event.Envelope) *string { return &e.ContentType }),
	plain("occurred_at", "timestamptz", func(m *row) *time.Time { return Storable(m.OccurredAt) }, func(m *row) any { return &m.occurred }),
	plain("event_metadata", "json", func(m *row) string { return encoded(m.Metadata) }, func(m *row) any { return &m.metadata }),
	plain("payload", "bytea", func(m *row) []byte { return notNil(m.Payload) }, func(m *row) any { return &m.Payload }),
}

const null = "NULL"

// plain is a column with a value that is not that of a field.
func plain[T any](name, typ string, value func(*row) T, target func(*row) any) column {
	return column{
		name: name, typ: typ, stored: "%s", read: "%s",
		absent: map[string]string{"text": "''", "bigint": "0", "integer": "1", "json": "'{}'", "timestamptz": null, "bytea": null}[typ],
		value:  func(m *row) any { return value(m) },
		values: func(list []row) any {
			all := make([]T, len(list))
			for i := range list {
				all[i] = value(&list[i])
			}
			return all
		},
		target: target,
	}
}

// keyed is a column of the key of a message, which every table of the inbox has.
func keyed(name, typ string, at func(*row) *string) column {
	c := plain(name, typ, func(m *row) string { return *at(m) }, func(m *row) any { return at(m) })
	c.absent = name
	if typ == "uuid" {
		c.read = "%s::text"
	}
	return c
}

// identifier is a name that Validate checks. A message with another name becomes a dead letter, with the name cut and cleaned.
func identifier(name string, at func(*event.Envelope) *string) column {
	return plain(name, "text", func(m *row) string { return Identifier(*at(&m.Envelope)) }, func(m *row) any { return at(&m.Envelope) })
}

// freeText is a text that nothing checks. A handler gets it in the form in which it is stored, see AsStored.
func freeText(name string, at func(*event.Envelope) *string) column {
	c := plain(name, "text", func(m *row) string { return readable(*at(&m.Envelope)) }, func(m *row) any { return at(&m.Envelope) })
	c.free = at
	return c
}

// number is a column for a number of the envelope.
func number(name string, at func(*event.Envelope) *int64) column {
	return plain(name, "bigint", func(m *row) int64 { return *at(&m.Envelope) }, func(m *row) any { return at(&m.Envelope) })
}

// optional stores the empty text as NULL.
func optional(c column) column {
	c.stored, c.read, c.absent = "nullif(%s, '')", "coalesce(%s, '')", null
	return c
}

// encoded is the metadata as JSON. A map of texts can always be encoded.
func encoded(m event.Metadata) string {
	text, _ := json.Marshal(m.Clone()) //nolint:errchkjson // see above
	return string(text)
}

// notNil keeps an empty payload from being stored as NULL, which the column refuses.
func notNil(payload []byte) []byte {
	if payload == nil {
		return []byte{}
	}
	return payload
}

// Words returns the words that stand for lists of columns in statements, each followed by its list, in the form of [pgsql.New].
func Words() []string {
	list := func(text func(n int, c *column) string) string {
		texts := make([]string, len(columns))
		for n := range columns {
			texts[n] = text(n, &columns[n])
		}
		return strings.Join(texts, ", ")
	}
	values := func(first int) string {
		return list(func(n int, c *column) string { return fmt.Sprintf(c.stored, fmt.Sprintf("$%d::%s", first+n, c.typ)) })
	}
	names := list(func(_ int, c *column) string { return c.name })
	return []string{
		"{message}", names,
		// For messages that get another consumer.
		"{message but consumer}", strings.Replace(names, "consumer, ", "", 1),
		// For pages of messages: a payload may be a megabyte.
		"{message but payload}", strings.TrimSuffix(names, "payload") + "NULL::bytea AS payload",
		// As many columns, of a table that has only the keys of messages.
		"{message absent}", list(func(_ int, c *column) string { return c.absent }),
		// The columns that ScanEnvelope reads, of a relation with the columns of {message}.
		"{message read}", list(func(_ int, c *column) string { return fmt.Sprintf(c.read, c.name) }),
		// The parameters of MessageArgs, behind those of the statement itself.
		"{message from $3}", values(3),
		"{message from $8}", values(8),
		// The same for many messages: the parameters of messageArrays, and what is stored of them.
		"{messages from $6}", list(func(n int, c *column) string { return fmt.Sprintf("$%d::%s[]", 6+n, c.typ) }),
		"{message stored}", list(func(_ int, c *column) string { return fmt.Sprintf(c.stored, c.name) }),
	}
}
