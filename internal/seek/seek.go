// Package seek is what the searches of outbox and inbox have in common: what a text that an operator has typed may be.
package seek

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/event"
)

// By is the property by which a search has found something.
type By string

// The properties, the first that fits counts.
const (
	ByID          By = "id"
	ByAggregate   By = "aggregate id"
	ByKey         By = "ordering key"
	ByCorrelation By = "correlation id"
	ByCausation   By = "causation id"
	ByTenant      By = "tenant"
)

const (
	// shortest is the least length of a text in bytes, and shortestID of the beginning of an id in digits. Less would find nearly everything.
	shortest   = 2
	shortestID = 6
	// shortestPart is the least length of the beginning of an aggregate id, correlation id or causation id.
	shortestPart = 4
)

// digits is the number of hexadecimal digits of a UUID.
const digits = 32

// ErrText means that no event can have a text, or that too many have it.
var ErrText = errors.New("this cannot be searched for")

// Text is what an operator searches for.
type Text struct {
	text string
	// low and high are the first and the last UUID that begin with the text, "" if no UUID does.
	low, high string
}

// New returns what a text may be. It returns an error for a text that nothing can have.
func New(text string) (Text, error) {
	t := Text{text: strings.TrimSpace(text)}
	if len(t.text) < shortest {
		return t, fmt.Errorf("%w: %q is too short, give at least %d characters", ErrText, t.text, shortest)
	}
	if err := event.ValidateIdentifier("text", t.text); err != nil {
		return t, fmt.Errorf("%w: %w", ErrText, err)
	}
	hex := strings.ToLower(strings.ReplaceAll(t.text, "-", ""))
	if len(hex) < shortestID || len(hex) > digits || strings.Trim(hex, "0123456789abcdef") != "" {
		return t, nil
	}
	low, err := uuid.Parse(hex + strings.Repeat("0", digits-len(hex)))
	if err != nil {
		return t, fmt.Errorf("read the id %q: %w", t.text, err)
	}
	high, err := uuid.Parse(hex + strings.Repeat("f", digits-len(hex)))
	if err != nil {
		return t, fmt.Errorf("read the id %q: %w", t.text, err)
	}
	t.low, t.high = low.String(), high.String()
	return t, nil
}

// IsID reports whether the text may be an id or its beginning.
func (t *Text) IsID() bool { return t.low != "" }

// Args returns the arguments $1 to $5 of [Match].
func (t *Text) Args() []any {
	var low, high any
	if t.IsID() {
		low, high = t.low, t.high
	}
	// The metadata is looked through as text before it is parsed: that is many times as fast.
	quoted, err := json.Marshal(t.text)
	if err != nil || len(quoted) < 2 {
		quoted = []byte(`""`)
	}
	return []any{low, high, t.text, string(quoted[1 : len(quoted)-1]), len(t.text) >= shortestPart}
}

// Match returns an expression on a row r of events or messages: the property that fits, NULL if none does. id is the column with the id, and metadata
// that with the metadata, as text.
func Match(id, metadata string) string {
	part := func(value string) string {
		return "(" + value + " = $3::text OR $5::boolean AND starts_with(" + value + ", $3::text))"
	}
	return `CASE
		WHEN ` + id + ` BETWEEN $1::uuid AND $2::uuid THEN '` + string(ByID) + `'
		WHEN ` + part("r.aggregate_id") + ` THEN '` + string(ByAggregate) + `'
		WHEN r.ordering_key = $3::text OR right(r.ordering_key, length($3::text) + 1) = '|' || $3::text THEN '` + string(ByKey) + `'
		WHEN strpos(` + metadata + `, $4::text) > 0 AND
			` + part("(r.event_metadata::json ->> '"+event.CorrelationID+"')") + ` THEN '` + string(ByCorrelation) + `'
		WHEN strpos(` + metadata + `, $4::text) > 0 AND ` + part("(r.event_metadata::json ->> '"+event.CausationID+"')") + ` THEN '` + string(ByCausation) + `'
		WHEN r.tenant_id = $3::text THEN '` + string(ByTenant) + `' END`
}
