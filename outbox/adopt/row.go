package adopt

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/outbox"
)

// row is a row of the old table, before it is known whether an event can be made of it.
type row struct {
	part, at, xmin                            string // tableoid, ctid and xmin
	label, id                                 sql.NullString
	topic, typ, kind, aggregate, version, key sql.NullString
	tenant, source                            sql.NullString
	occurred                                  sql.NullTime
	payload, metadata                         []byte
	entries                                   sql.NullString // of the metadata, as a JSON object of texts
	block                                     sql.NullString
	headers                                   []sql.NullString
}

// scan reads the columns of plan.columns.
func (r *row) scan(p *plan, scan pgsql.Scan) error {
	r.headers = make([]sql.NullString, len(p.headers))
	dest := []any{
		&r.part, &r.at, &r.xmin, &r.label, &r.id, &r.topic, &r.typ, &r.kind, &r.aggregate, &r.version, &r.key,
		&r.tenant, &r.source, &r.occurred, &r.payload, &r.metadata, &r.entries, &r.block,
	}
	for i := range r.headers {
		dest = append(dest, &r.headers[i])
	}
	return scan(dest...)
}

func (r *row) place() string { return r.part + r.at + r.xmin }

// Why there is no event of a row. The trigger says the same.
var (
	errNoID       = errors.New("the id is NULL or empty")
	errNoMetadata = errors.New("the metadata is not a JSON object, a list of pairs or an hstore, or has a NUL")
)

// envelope makes the event of a row, or says why there is none.
func (r *row) envelope(ctx context.Context, p *plan, store *outbox.Store) (event.Envelope, error) {
	none := event.Envelope{}
	if !r.id.Valid {
		return none, errNoID
	}
	if r.topic.String == "" { // Add would take the type of the aggregate
		return none, errors.New("the topic is NULL or empty")
	}
	if r.payload == nil {
		return none, errors.New("the payload is NULL")
	}
	var version int64
	if r.version.Valid {
		var err error
		if version, err = strconv.ParseInt(r.version.String, 10, 64); err != nil {
			return none, fmt.Errorf("the aggregate version %q is not a whole number", r.version.String)
		}
	}
	metadata, err := r.metadataOf(p)
	if err != nil {
		return none, err
	}
	payload, err := r.payloadOf(p)
	if err != nil {
		return none, err
	}
	return store.Envelope(ctx, outbox.Draft{Topic: r.topic.String, Payload: payload, Options: []event.AddOption{func(e *event.Envelope) {
		e.ID, e.Type, e.Source, e.TenantID = r.id.String, r.typ.String, r.source.String, r.tenant.String
		e.AggregateType, e.AggregateID, e.AggregateVersion = r.kind.String, r.aggregate.String, version
		e.Delivery.OrderingKey, e.ContentType, e.Metadata = r.key.String, p.contentType, metadata
		if r.occurred.Valid {
			e.OccurredAt = r.occurred.Time
		}
	}}})
}

func (r *row) payloadOf(p *plan) ([]byte, error) {
	payload := r.payload
	if p.mapping.Base64 {
		decoded, err := base64.StdEncoding.DecodeString(string(payload))
		if err != nil {
			return nil, fmt.Errorf("the payload is not base64: %w", err)
		}
		payload = decoded
	}
	if p.isJSON() && !json.Valid(payload) {
		return nil, fmt.Errorf("the payload is not valid JSON: %w", json.Unmarshal(payload, new(json.RawMessage)))
	}
	return payload, nil
}

// metadataOf has the entries of the metadata and the headers of the mapping.
func (r *row) metadataOf(p *plan) (event.Metadata, error) {
	metadata := event.Metadata{}
	switch {
	case r.entries.Valid:
		if err := json.Unmarshal([]byte(r.entries.String), &metadata); err != nil {
			return nil, fmt.Errorf("the metadata: %w", err)
		}
	case r.metadata != nil:
		return nil, errNoMetadata
	}
	r.addHeaders(p, metadata)
	return metadata, nil
}

func (r *row) addHeaders(p *plan, to event.Metadata) {
	for i, name := range p.headers {
		if r.headers[i].Valid {
			to[name] = r.headers[i].String
		}
	}
}
