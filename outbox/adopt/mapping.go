package adopt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Mapping says which table to take over, and which column becomes which field of an event.
//
// Most fields are texts with references to columns in braces. "{kind}" is the value of the column kind, "shop.{kind}" has something before it, and
// "orders" is a constant. "{args.order.id}" reads the columns's JSON object. A name is written as it stands in the catalog: "{aggregateId}" is the
// column "aggregateId". A name with a dot or a brace stands in double quotes: `{"order.id"}`. Two braces stand for one: "{{". If a column is NULL, the
// whole field is not set.
type Mapping struct {
	// Table is the table, with or without its schema: "app.outbox". Names are written as they stand in the catalog, and in double quotes if they have a
	// dot. Default schema: the search_path. Required.
	Table string `yaml:"table"`

	// ID identifies the event. A UUID stays as it is. Any other value becomes a UUID that is computed from the table and the value, so it is the same each
	// time. Required.
	ID string `yaml:"id"`
	// Topic is the topic of the event. Required.
	Topic string `yaml:"topic"`
	// Type is the event's type. Default: the topic.
	Type string `yaml:"type,omitempty"`
	// AggregateType and AggregateID name the aggregate, and with it the ordering key. Default: none, the events have no order.
	AggregateType string `yaml:"aggregate_type,omitempty"`
	AggregateID   string `yaml:"aggregate_id,omitempty"`
	// AggregateVersion is one integer column. Default: 0, no version.
	AggregateVersion string `yaml:"aggregate_version,omitempty"`
	// Key is an ordering key that replaces that of the aggregate, and is the message key as well. Default: none.
	Key string `yaml:"key,omitempty"`
	// Tenant is the tenant. Default: that of the store.
	Tenant string `yaml:"tenant,omitempty"`
	// Source is the service that has written the row. Default: that of the store.
	Source string `yaml:"source,omitempty"`
	// OccurredAt is one column with a time, or a part of one: a timestamp, a number (see OccurredAtUnit) or a text such as that of ISO 8601. A time without a
	// zone is in UTC. Default: the time of the move, also for a row whose time is infinite or cannot be read.
	OccurredAt string `yaml:"occurred_at,omitempty"`
	// OccurredAtUnit is what the numbers of OccurredAt count since 1970: "s", "ms", "us" or "ns". Default: none, it is no number.
	OccurredAtUnit string `yaml:"occurred_at_unit,omitempty"`

	// Payload is one column of type json, jsonb, text or bytea, or a part of such a column: "{message.body}". Required.
	Payload string `yaml:"payload"`
	// Base64 says that Payload is a text in base64. Default: false.
	Base64 bool `yaml:"base64,omitempty"`
	// ContentType is the media type of the payload. If it is one of JSON, a row whose payload is not valid JSON stays where it is. Default:
	// application/json, and application/octet-stream if the column is of type bytea or Base64 is set.
	ContentType string `yaml:"content_type,omitempty"`
	// Metadata is one column with a JSON object, or a part of one. Its texts become metadata; other values do so as JSON. In place of an object it may be a
	// list of pairs (["k", "v"] or {"key": "k", "value": "v"}), or an hstore. Default: none.
	Metadata string `yaml:"metadata,omitempty"`
	// Headers are further entries of the metadata, by name. Default: none.
	Headers map[string]string `yaml:"headers,omitempty"`

	// Order lists the columns by which rows are sorted, for example the id of a sequence, or created_at and id. Required.
	Order []string `yaml:"order"`
	// Unsent says which rows were not published yet: for each column the value of such a row, or a list of values. nil is NULL. A row has to fulfil all
	// conditions. Default: each row of the table is unsent.
	Unsent map[string]any `yaml:"unsent,omitempty"`
	// Where is a further condition, in SQL, that unsent rows fulfil. It names tables and functions with their schemas, because the trigger of
	// [Mover.Forward] has no search_path. Default: none.
	Where string `yaml:"where,omitempty"`
	// Mark says what is written to a row that was moved: a value for each column, nil for NULL, and "now()" for the time. The row must not count as
	// unsent then. Give Mark or Delete.
	Mark map[string]any `yaml:"mark,omitempty"`
	// Delete says that rows that were moved are deleted.
	Delete bool `yaml:"delete,omitempty"`
}

// Read reads a mapping in YAML. The names of its fields are those of the tags of [Mapping]; an unknown name is an error. It checks what
// [Mapping.Validate] checks.
func Read(from io.Reader) (*Mapping, error) {
	text, err := io.ReadAll(from)
	if err != nil {
		return nil, fmt.Errorf("adopt: read the mapping: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	m := &Mapping{}
	if err := dec.Decode(m); err != nil {
		switch {
		case errors.Is(err, io.EOF):
			err = errors.New("it is empty")
		case strings.Contains(err.Error(), "cannot unmarshal !!map into string"):
			err = fmt.Errorf("%w; put texts with braces in quotes, as in id: \"{id}\"", err)
		}
		return nil, fmt.Errorf("adopt: read the mapping: %w", err)
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("adopt: read the mapping: the file has a second document: give one table a file of its own")
	}
	return m, m.Validate()
}

// field is a field of a mapping that is a text with references.
type field struct {
	name, text string
	required   bool
	single     bool // one reference and nothing else
}

func (m *Mapping) fields() []field {
	list := []field{
		{"id", m.ID, true, false}, {"topic", m.Topic, true, false}, {"type", m.Type, false, false},
		{"aggregate_type", m.AggregateType, false, false}, {"aggregate_id", m.AggregateID, false, false},
		{"aggregate_version", m.AggregateVersion, false, true}, {"key", m.Key, false, false}, {"tenant", m.Tenant, false, false},
		{"source", m.Source, false, false}, {"occurred_at", m.OccurredAt, false, true}, {"payload", m.Payload, true, true},
		{"metadata", m.Metadata, false, true},
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		list = append(list, field{"headers." + name, m.Headers[name], false, false})
	}
	return list
}

// Validate returns an error that names each field that cannot be used. Whether the columns exist is found out by [New].
func (m *Mapping) Validate() error {
	var errs []error
	refuse := func(field, why string) { errs = append(errs, fmt.Errorf("adopt: mapping: %s: %s", field, why)) }
	if _, _, err := splitTable(m.Table); err != nil {
		refuse("table", err.Error())
	}
	for _, f := range m.fields() {
		t, err := parseTemplate(f.text)
		switch {
		case err != nil:
			refuse(f.name, err.Error())
		case f.text == "" && f.required:
			refuse(f.name, `is missing: give a column, such as "{`+f.name+`}"`)
		case f.text != "" && f.single && t.single() == nil:
			refuse(f.name, fmt.Sprintf(`%q is not one column: give one in braces, such as "{%s}"`, f.text, f.name))
		}
	}
	if (m.AggregateType == "") != (m.AggregateID == "") {
		refuse("aggregate_type", "an aggregate needs aggregate_type and aggregate_id, and one of them is missing")
	}
	if len(m.Order) == 0 {
		refuse("order", "is missing: name the columns by which rows are sorted, such as [created_at, id]")
	}
	for _, column := range m.Order {
		if strings.ContainsAny(column, "{}") || column == "" {
			refuse("order", fmt.Sprintf("%q is not the name of a column: write it without braces", column))
		}
	}
	for column, value := range m.Unsent {
		if list := values(value); list == nil {
			refuse("unsent."+column, fmt.Sprintf("%v is not a value, and no list of values: give a text, a number, true, false or null", value))
		}
	}
	for column, value := range m.Mark {
		if list := values(value); len(list) != 1 {
			refuse("mark."+column, fmt.Sprintf("%v is not one value: give a text, a number, true, false, null or now()", value))
		}
	}
	if m.OccurredAtUnit != "" && !slices.Contains([]string{"s", "ms", "us", "ns"}, m.OccurredAtUnit) {
		refuse("occurred_at_unit", fmt.Sprintf("%q is not known: give s, ms, us or ns", m.OccurredAtUnit))
	}
	switch {
	case m.Delete && len(m.Mark) > 0:
		refuse("mark", "a row that is deleted cannot be marked: leave mark or delete out")
	case !m.Delete && len(m.Mark) == 0:
		refuse("mark", "say what becomes of rows that were moved: mark, such as {status: sent}, or delete: true")
	case len(m.Mark) > 0 && len(m.Unsent) == 0 && m.Where == "":
		refuse("unsent", "is missing: a row that is marked stays in the table, so say by which columns a row is unsent")
	}
	return errors.Join(errs...)
}

// null stands for NULL in a list of values.
const null = "\x00"

// values returns the texts of a value or of a list of values, nil if it is neither.
func values(value any) (list []string) {
	switch v := value.(type) {
	case nil:
		return []string{null}
	case string:
		return []string{v}
	case bool, int, int64, uint64, float64:
		return []string{fmt.Sprint(v)}
	case []string:
		return v
	case []any:
		for _, one := range v {
			if _, nested := one.([]any); nested {
				return nil
			}
			of := values(one)
			if of == nil {
				return nil
			}
			list = append(list, of...)
		}
		return list
	default:
		return nil
	}
}
