package facts

import (
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/ops"
)

// Detail is a property with its name.
type Detail struct{ Name, Value string }

// Trace is the trace in which an event was recorded. Href is its address, "" if pages do not link to traces.
type Trace struct{ Name, Href string }

// TraceID is the placeholder for the id in the address of a trace.
const TraceID = "{trace_id}"

// TraceOf returns the trace of an event by its metadata, nil if it has none. address contains [TraceID].
func TraceOf(address string, m event.Metadata) *Trace {
	// A W3C traceparent has four parts, and the second is the trace id: 32 hexadecimal digits (Trace Context, section 3.2). Anything else gets no link.
	parts := strings.Split(m[event.TraceParent], "-")
	if len(parts) < 4 || len(parts[1]) != 32 {
		return nil
	}
	if _, err := hex.DecodeString(parts[1]); err != nil {
		return nil
	}
	t := &Trace{Name: parts[1]}
	if address != "" {
		t.Href = strings.ReplaceAll(address, TraceID, parts[1])
	}
	return t
}

// Metadata returns the metadata, by name.
func Metadata(m event.Metadata) (list []Detail) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, Detail{name, m[name]})
	}
	return list
}

// OfLetter returns the properties of a dead letter.
func OfLetter(l *ops.Letter) []Detail {
	e := &l.Envelope
	all := []Detail{
		{"Event id", e.ID}, {"Type", e.Type}, {"Schema version", strconv.Itoa(max(e.SchemaVersion, 1))}, {"Schema id", e.SchemaID}, {"Topic", e.Topic},
		{"Tenant", e.TenantID}, {"Source", e.Source}, {"Aggregate", strings.TrimSpace(e.AggregateType + " " + e.AggregateID)},
		{"Aggregate version", words.Positive(e.AggregateVersion)}, {"Ordering key", l.Key}, {"Sequence", words.Positive(e.Sequence)},
		{"Occurred", words.Stamp(e.OccurredAt)}, {"Content type", e.ContentType}, {"Correlation id", e.Metadata[event.CorrelationID]},
	}
	all = append(all, Detail{"Failed last in", l.FailedBy})
	if l.Ref.Box == ops.BoxInbox && l.Ref.ID != e.ID {
		all = append(all, Detail{"Message key", l.Ref.ID})
	}
	return withValue(all)
}

func withValue(all []Detail) []Detail {
	return slices.DeleteFunc(all, func(d Detail) bool { return d.Value == "" })
}
