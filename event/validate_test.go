package event_test

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
)

func TestValidateIdentifier(t *testing.T) {
	for _, s := range []string{
		"", "a", "order.placed", "ünïcode ✓", "with space", `quotes " ' and \`, "\uFFFD", "a|b/c",
		strings.Repeat("x", event.MaxIdentifier), strings.Repeat("é", event.MaxIdentifier/2),
	} {
		require.NoError(t, event.ValidateIdentifier("Field", s), "%q", s)
	}
	for s, reason := range map[string]string{
		"a\x00b": "control", "\n": "control", "\x7f": "control", "\u0085": "control", "tab\t": "control",
		"k\xff": "UTF-8", "\xed\xa0\x80": "UTF-8", "\xc0\x80": "UTF-8",
		strings.Repeat("x", event.MaxIdentifier+1):   "256 bytes",
		strings.Repeat("é", event.MaxIdentifier/2+1): "256 bytes",
	} {
		err := event.ValidateIdentifier("Field", s)
		require.ErrorIs(t, err, event.ErrInvalid, "%q", s)
		require.ErrorContains(t, err, "event: Field ", "the field is named")
		require.ErrorContains(t, err, reason)
	}
}

func FuzzValidateIdentifier(f *testing.F) {
	for _, s := range []string{"", "a", "a\x00", "k\xff", "\u0085", strings.Repeat("x", 256), "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		fine := len(s) <= event.MaxIdentifier && utf8.ValidString(s)
		for _, r := range s {
			fine = fine && !unicode.Is(unicode.Cc, r)
		}
		require.Equal(t, fine, event.ValidateIdentifier("F", s) == nil, "%q", s)
	})
}

func anEnvelope() event.Envelope {
	return event.Envelope{
		ID: "01932f5e-7c00-7000-8000-000000000001", Type: "order.placed", Source: "shop", TenantID: "t", Topic: "order",
		ContentType: event.ContentTypeJSON, OccurredAt: time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC),
		AggregateType: "order", AggregateID: "1", AggregateVersion: 1, SchemaVersion: 1, RoutingKey: "1",
		Metadata: event.Metadata{"correlation_id": "c", "text": "two\nlines"},
	}
}

func TestEnvelopeValidate(t *testing.T) {
	valid := anEnvelope()
	require.NoError(t, valid.Validate())
	loose := anEnvelope()
	loose.AggregateType, loose.AggregateID, loose.RoutingKey, loose.SchemaVersion, loose.Metadata = "", "", "", 0, nil
	require.NoError(t, loose.Validate(), "an event of no aggregate")

	for _, c := range []struct {
		field  string
		change func(*event.Envelope)
	}{
		{"ID", func(e *event.Envelope) { e.ID = "" }},
		{"Type", func(e *event.Envelope) { e.Type = "" }},
		{"Source", func(e *event.Envelope) { e.Source = "" }},
		{"TenantID", func(e *event.Envelope) { e.TenantID = "" }},
		{"Topic", func(e *event.Envelope) { e.Topic = "" }},
		{"ContentType", func(e *event.Envelope) { e.ContentType = "" }},
		{"AggregateType", func(e *event.Envelope) { e.AggregateType = "" }},
		{"AggregateID", func(e *event.Envelope) { e.AggregateID = "" }},
		{"OccurredAt", func(e *event.Envelope) { e.OccurredAt = time.Time{} }},

		{"ID", func(e *event.Envelope) { e.ID = "\x00" }},
		{"Type", func(e *event.Envelope) { e.Type = "\xff" }},
		{"Source", func(e *event.Envelope) { e.Source = "a\nb" }},
		{"TenantID", func(e *event.Envelope) { e.TenantID = strings.Repeat("x", 256) }},
		{"Topic", func(e *event.Envelope) { e.Topic = "\x00" }},
		{"SchemaID", func(e *event.Envelope) { e.SchemaID = "\x00" }},
		{"AggregateType", func(e *event.Envelope) { e.AggregateType = "\x00" }},
		{"AggregateID", func(e *event.Envelope) { e.AggregateID = "k\xff" }},
		{"RoutingKey", func(e *event.Envelope) { e.RoutingKey = "\x00" }},
		{"ContentType", func(e *event.Envelope) { e.ContentType = "\x00" }},
		{"Delivery.OrderingKey", func(e *event.Envelope) { e.Delivery.OrderingKey = "\x00" }},
		{"Delivery.DedupKey", func(e *event.Envelope) { e.Delivery.DedupKey = "\x00" }},

		{"Topic", func(e *event.Envelope) { e.Topic = "persistent://other/tenant/topic" }},
		{"Topic", func(e *event.Envelope) { e.Topic = "a%2Fb" }},
		{"Topic", func(e *event.Envelope) { e.Topic = "a..b" }},
		{"Topic", func(e *event.Envelope) { e.Topic = "." }},
		{"Topic", func(e *event.Envelope) { e.Topic = " a" }},
		{"Topic", func(e *event.Envelope) { e.Topic = "a\u00a0" }},

		{"OccurredAt", func(e *event.Envelope) { e.OccurredAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"Delivery.Delay", func(e *event.Envelope) { e.Delivery.Delay = -1 }},
		{"Delivery.Delay", func(e *event.Envelope) { e.Delivery.Delay, e.Delivery.NotBefore = 1, time.Now() }},
		{"Delivery.NotBefore", func(e *event.Envelope) { e.Delivery.NotBefore = time.Unix(1<<50, 0) }},
		{"Delivery.ExpiresAt", func(e *event.Envelope) { e.Delivery.ExpiresAt = time.Unix(-1<<50, 0) }},
		{"AggregateVersion", func(e *event.Envelope) { e.AggregateVersion = -1 }},
		{"SchemaVersion", func(e *event.Envelope) { e.SchemaVersion = -1 }},
		{"SchemaVersion", func(e *event.Envelope) { e.SchemaVersion = math.MaxInt32 + 1 }},
		{"Delivery.MaxAttempts", func(e *event.Envelope) { e.Delivery.MaxAttempts = -1 }},
		{"Delivery.MaxAttempts", func(e *event.Envelope) { e.Delivery.MaxAttempts = math.MaxInt16 + 1 }},

		{"Metadata", func(e *event.Envelope) { e.Metadata = event.Metadata{"": "x"} }},
		{"Metadata key", func(e *event.Envelope) { e.Metadata = event.Metadata{"a\x00": "x"} }},
		{"Metadata[k]", func(e *event.Envelope) { e.Metadata = event.Metadata{"k": "a\x00"} }},
		{"Metadata[k]", func(e *event.Envelope) { e.Metadata = event.Metadata{"k": "\xff"} }},
		{"Metadata", func(e *event.Envelope) {
			e.Metadata = event.Metadata{"k": strings.Repeat("x", event.MaxMetadata)}
		}},
	} {
		t.Run(c.field, func(t *testing.T) {
			e := anEnvelope()
			c.change(&e)
			err := e.Validate()
			require.ErrorIs(t, err, event.ErrInvalid)
			var invalid *event.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, c.field, invalid.Field)
			require.NotContains(t, err.Error(), "\n", "one mistake, one line")
		})
	}
}

func TestEnvelopeValidateNamesAllThatIsWrong(t *testing.T) {
	e := anEnvelope()
	e.Source, e.Topic, e.AggregateID = "", "a/b", "\x00"
	e.OccurredAt = time.Time{}
	err := e.Validate()
	for _, field := range []string{"Source", "Topic", "AggregateID", "OccurredAt"} {
		require.ErrorContains(t, err, "event: "+field+" ")
	}
}

func TestMetadataUpToTheLimit(t *testing.T) {
	e := anEnvelope()
	e.Metadata = event.Metadata{"k": strings.Repeat("x", event.MaxMetadata-1)}
	require.NoError(t, e.Validate())
}
