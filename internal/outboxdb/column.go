package outboxdb

import (
	"database/sql"
	"strings"
	"time"

	"github.com/oncebox/oncebox/event"
)

// column is a column that all tables of rows have in common: its name, how a flush writes its value, and how a row reads it, from the binary protocol or
// through database/sql. The lists of columns in statements are made of it.
//
// A new column needs, in this order:
//
//   - if producers set it: a field, its check in event/validate.go and an option in event/option.go. A field of event.Delivery stays in the outbox; a
//     field of event.Envelope itself travels to consumers. If the relay sets it: a field of [Row]
//   - a line in the table "outbox" (migrations/sql). The tables of held, published and dead rows, and the views, have the columns of that table; they copy
//     NOT NULL and no DEFAULT. migrations/difference_test.go has the columns of one view as a text
//   - an entry in columns, here. newRow fills what is not in the envelope
//   - a field of outbox/state/record.go, if users read it in Go
//   - a parameter of the SQL function oncebox_add, its check, its name and its value there, if writers in other languages set it
//
// The type column of inbox/internal/store lists the further places of a column that travels. Two commands write the files that are compared:
//
//	WRITE_TABLES=1 go test ./migrations
//	WRITE_STATEMENTS=1 go test ./internal/outboxdb ./internal/lanedb ./outbox/...
type column struct {
	name, typ string
	// own says that the value differs from event to event, as the id does. The other columns are sent once for all rows that agree in them, see alike.
	own bool
	// value and values return the parameter of a flush, for one row and for many rows; nil: the table has a DEFAULT.
	value  func(r *Row) any
	values func(rows []Row) any
	// same compares the stored values of two rows.
	same func(a, b *Row) bool
	// decode takes the next value of the binary protocol. target returns the variable for [sql.Rows.Scan].
	decode func(d *Decoder, r *Row)
	target func(r *Row) any
}

// columns are in the order of the tables. The payload is the last one.
var columns = []column{ //nolint:gochecknoglobals // a constant
	byDefault(plain("seq", "bigint", func(r *Row) *int64 { return &r.Sequence }, (*Decoder).bigint)),
	own(plain("id", "uuid", func(r *Row) *string { return &r.ID }, (*Decoder).id)),
	own(instant("occurred_at", func(r *Row) *time.Time { return &r.OccurredAt })),
	byDefault(instant("created_at", func(r *Row) *time.Time { return &r.CreatedAt })),
	optionalInstant("not_before", func(r *Row) *time.Time { return &r.Delivery.NotBefore }),
	optionalInstant("expires_at", func(r *Row) *time.Time { return &r.Delivery.ExpiresAt }),
	own(plain("aggregate_version", "bigint", func(r *Row) *int64 { return &r.AggregateVersion }, (*Decoder).bigint)),
	own(plain("schema_version", "int", func(r *Row) *int { return &r.SchemaVersion }, (*Decoder).integer)),
	plain("lane", "smallint", func(r *Row) *int16 { return &r.Lane }, (*Decoder).smallint),
	optional("max_attempts", "smallint", func(r *Row) *int { return &r.Delivery.MaxAttempts }, (*Decoder).count),
	byDefault(plain("retry_count", "smallint", func(r *Row) *int { return &r.RetryCount }, (*Decoder).count)),
	byDefault(plain("crashes", "smallint", func(r *Row) *int { return &r.Crashes }, (*Decoder).count)),
	plain("tenant_id", "text", func(r *Row) *string { return &r.TenantID }, (*Decoder).word),
	plain("topic", "text", func(r *Row) *string { return &r.Topic }, (*Decoder).word),
	optional("ordering_key", "text", func(r *Row) *string { return &r.Key }, (*Decoder).text),
	plain("aggregate_type", "text", func(r *Row) *string { return &r.AggregateType }, (*Decoder).word),
	plain("aggregate_id", "text", func(r *Row) *string { return &r.AggregateID }, (*Decoder).text),
	own(plain("event_type", "text", func(r *Row) *string { return &r.Type }, (*Decoder).word)),
	plain("source", "text", func(r *Row) *string { return &r.Source }, (*Decoder).word),
	optional("routing_key", "text", func(r *Row) *string { return &r.RoutingKey }, (*Decoder).text),
	optional("schema_id", "text", func(r *Row) *string { return &r.SchemaID }, (*Decoder).word),
	plain("content_type", "text", func(r *Row) *string { return &r.ContentType }, (*Decoder).word),
	optional("dedup_key", "text", func(r *Row) *string { return &r.Delivery.DedupKey }, (*Decoder).text),
	metadata(),
	own(stored("payload", "bytea", func(r *Row) *[]byte { return &r.Payload }, (*Decoder).bytes)),
}

// lists returns the words that stand for lists of columns in statements, each followed by its list, in the form of
// [pgsql.New].
func lists() []string {
	others := make([]string, len(columns)-1)
	for i := range others {
		others[i] = columns[i].name
	}
	return []string{
		"{columns}", columnsWith(nil),
		"{columns but payload}", strings.Join(others, ", "),
		// A refusal is counted. It also clears the count of crashes, because the projector survived the publication.
		"{columns counted}", columnsWith(map[string]string{
			"retry_count": "(retry_count + (verdict IN (1, 3, 5))::int)::smallint", "crashes": "CASE verdict WHEN 1 THEN 0 ELSE crashes END",
		}),
		"{columns anew}", columnsWith(map[string]string{"retry_count": "0", "crashes": "0"}),
	}
}

// columnsWith lists all columns, with expressions in the place of some.
func columnsWith(instead map[string]string) string {
	list := make([]string, len(columns))
	for i := range columns {
		list[i] = columns[i].name
		if expression, ok := instead[list[i]]; ok {
			list[i] = expression
		}
	}
	return strings.Join(list, ", ")
}

// stored is a column of a field that is never NULL.
func stored[T any](name, typ string, at func(*Row) *T, read func(*Decoder, *T)) column {
	return column{
		name: name, typ: typ,
		value: func(r *Row) any { return parameter(typ, at(r)) },
		values: func(rows []Row) any {
			all := make([]T, len(rows))
			for i := range rows {
				all[i] = *at(&rows[i])
			}
			return all
		},
		decode: func(d *Decoder, r *Row) { read(d, at(r)) },
		target: func(r *Row) any { return at(r) },
	}
}

// plain is stored for a field that can be compared.
func plain[T comparable](name, typ string, at func(*Row) *T, read func(*Decoder, *T)) column {
	c := stored(name, typ, at, read)
	c.same = func(a, b *Row) bool { return *at(a) == *at(b) }
	return c
}

// optional is plain for a field whose zero value is NULL.
func optional[T comparable](name, typ string, at func(*Row) *T, read func(*Decoder, *T)) column {
	c := plain(name, typ, at, read)
	given := c.value
	c.value = func(r *Row) any {
		var zero T
		if *at(r) == zero {
			return nil
		}
		return given(r)
	}
	c.values = func(rows []Row) any {
		all := make([]*T, len(rows))
		for i := range rows {
			all[i] = Nullable(*at(&rows[i]))
		}
		return all
	}
	c.target = func(r *Row) any { return &zeroForNull[T]{at(r)} }
	return c
}

func instant(name string, at func(*Row) *time.Time) column {
	c := plain(name, "timestamptz", at, (*Decoder).instant)
	c.target = func(r *Row) any { return &inUTC{at(r)} }
	return c
}

func optionalInstant(name string, at func(*Row) *time.Time) column {
	c := optional(name, "timestamptz", at, (*Decoder).instant)
	c.target = func(r *Row) any { return &inUTC{at(r)} }
	return c
}

// metadata is stored as it was encoded, once for all events of a unit that have the same.
func metadata() column {
	c := plain("event_metadata", "text", func(r *Row) *string { return &r.encoded }, nil)
	c.decode = func(d *Decoder, r *Row) { r.Metadata = readMetadata(d.next()) }
	c.target = func(r *Row) any { return &decoded{&r.Metadata} }
	return c
}

// own marks a column in which even alike events differ.
func own(c column) column {
	c.own = true
	return c
}

// byDefault leaves the value of a new row to the table.
func byDefault(c column) column {
	c.value, c.values = nil, nil
	return c
}

// Nullable maps the zero value to NULL.
func Nullable[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// zeroForNull scans into a field: NULL is the zero value.
type zeroForNull[T any] struct{ to *T }

// Scan implements [sql.Scanner].
func (z *zeroForNull[T]) Scan(src any) error {
	var v sql.Null[T]
	err := v.Scan(src)
	*z.to = v.V
	return err
}

// inUTC scans a time, NULL as the zero time.
type inUTC struct{ to *time.Time }

// Scan implements [sql.Scanner].
func (u *inUTC) Scan(src any) error {
	var v sql.NullTime
	err := v.Scan(src)
	*u.to = v.Time.UTC()
	return err
}

// decoded scans metadata.
type decoded struct{ to *event.Metadata }

// Scan implements [sql.Scanner].
func (m *decoded) Scan(src any) error {
	var text sql.Null[[]byte]
	err := text.Scan(src)
	*m.to = readMetadata(text.V)
	return err
}
