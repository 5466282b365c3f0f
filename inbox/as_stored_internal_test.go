package inbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/messaging"
)

// A message is handed on as it came only where storing it would change nothing.
func TestWhatStoringKeepsIsHandedOn(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 5, 6, 7, 8_000, time.UTC)
	plain := event.Envelope{
		ID: "1", Source: "shop", TenantID: "acme", AggregateType: "order", AggregateID: "7", Type: "placed", SchemaVersion: 1,
		OccurredAt: at, ContentType: "application/json", Payload: []byte("{}"), Metadata: event.Metadata{},
	}
	for name, c := range map[string]struct {
		change func(*event.Envelope)
		same   bool
	}{
		"as oncebox sends it":          {func(*event.Envelope) {}, true},
		"with an ordering key":         {func(e *event.Envelope) { e.Delivery.OrderingKey = `a|b\c` }, true},
		"without a time":               {func(e *event.Envelope) { e.OccurredAt = time.Time{} }, true},
		"without order":                {func(e *event.Envelope) { e.AggregateID = "" }, true},
		"without a tenant":             {func(e *event.Envelope) { e.TenantID = "" }, false},
		"ordered by a routing key":     {func(e *event.Envelope) { e.AggregateID, e.RoutingKey = "", "k" }, false},
		"routing key that is no text":  {func(e *event.Envelope) { e.RoutingKey = "a\xff" }, false},
		"routing key with a tabulator": {func(e *event.Envelope) { e.RoutingKey = "a\t" }, false},
		"content type with a NUL":      {func(e *event.Envelope) { e.ContentType = "a\x00" }, false},
		"version 0":                    {func(e *event.Envelope) { e.SchemaVersion = 0 }, false},
		"version beyond an integer":    {func(e *event.Envelope) { e.SchemaVersion = 1 << 40 }, false},
		"nanoseconds":                  {func(e *event.Envelope) { e.OccurredAt = at.Add(1) }, false},
		"another zone":                 {func(e *event.Envelope) { e.OccurredAt = at.In(time.FixedZone("", 3600)) }, false},
		"no time, in another zone":     {func(e *event.Envelope) { e.OccurredAt = time.Time{}.In(time.FixedZone("", 3600)) }, false},
		"a year that RFC 3339 lacks":   {func(e *event.Envelope) { e.OccurredAt = at.AddDate(9000, 0, 0) }, false},
		"no payload":                   {func(e *event.Envelope) { e.Payload = nil }, false},
		"no metadata":                  {func(e *event.Envelope) { e.Metadata = nil }, false},
		"metadata that is no text":     {func(e *event.Envelope) { e.Metadata = event.Metadata{"a": "\xff"} }, false},
		"a key against duplicates":     {func(e *event.Envelope) { e.Delivery.DedupKey = "d" }, false},
		"an expiry":                    {func(e *event.Envelope) { e.Delivery.ExpiresAt = at }, false},
	} {
		for _, unordered := range []bool{false, true} {
			e := plain
			c.change(&e)
			m := messaging.NewMessage(e, 1, nil)
			keeps := c.same && (!unordered || e.Delivery.OrderingKey == "")
			require.Equal(t, keeps, store.AsStored(m, unordered) == m, "%s, unordered: %v", name, unordered)
			if keeps {
				require.Equal(t, e, store.Stored(m, unordered).Envelope, "%s, unordered: %v", name, unordered)
			} else {
				require.NotEqual(t, e, store.Stored(m, unordered).Envelope, "%s, unordered: %v", name, unordered)
			}
		}
	}
}
