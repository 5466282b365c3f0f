package store

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
)

// DefaultPage is the size of a page whose limit is not given.
const DefaultPage = 100

// MessageArgs returns the parameters of a message, one for each column. Names are cleaned, so that PostgreSQL takes them. The payload is stored as
// it came.
func MessageArgs(id Identity, m *messaging.Message) []any {
	r := newRow(id, m)
	args := make([]any, len(columns))
	for n := range columns {
		args[n] = columns[n].value(&r)
	}
	return args
}

// messageArrays returns the parameters of many messages, one array for each column.
func messageArrays(rows []row) []any {
	args := make([]any, len(columns))
	for n := range columns {
		args[n] = columns[n].values(rows)
	}
	return args
}

// newRow joins the message with the names under which it is stored, which may differ from the ones in its envelope.
func newRow(id Identity, m *messaging.Message) row {
	return row{
		ref:      operator.MessageRef{MessageKey: id.Key.String(), Consumer: id.Consumer, TenantID: id.Tenant, Source: id.Source},
		Envelope: m.Envelope, ordering: id.Ordering,
	}
}

// RefArgs returns the arguments of the statements about one message. It refuses a key that is not a UUID.
func RefArgs(ref operator.MessageRef) ([]any, error) {
	parsed, err := uuid.Parse(ref.MessageKey)
	if err != nil {
		return nil, fmt.Errorf("MessageRef.MessageKey %q is not a UUID: %w", ref.MessageKey, err)
	}
	return []any{parsed.String(), ref.Consumer, ref.TenantID, ref.Source}, nil
}

// ScanEnvelope reads the columns of {message read}, and the columns after them into more.
func ScanEnvelope(scan pgsql.Scan, more ...any) (operator.MessageRef, event.Envelope, error) {
	var r row
	dest := make([]any, 0, len(columns)+len(more))
	for n := range columns {
		dest = append(dest, columns[n].target(&r))
	}
	if err := scan(append(dest, more...)...); err != nil {
		return r.ref, r.Envelope, err
	}
	r.TenantID, r.Source, r.OccurredAt = r.ref.TenantID, r.ref.Source, r.occurred.Time.UTC()
	r.Delivery.OrderingKey = givenKey(r.ordering, &r.Envelope)
	return r.ref, r.Envelope, json.Unmarshal(r.metadata, &r.Metadata)
}
