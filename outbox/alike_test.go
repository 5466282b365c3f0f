package outbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox/state"
)

// Events of one flush share a parameter if all of them are equal in it. A value that differs only in the
// last event must be stored as it is.
func TestFlushKeepsWhatDiffers(t *testing.T) {
	f := newFixture(t, nil)
	for name, change := range map[string]func(*event.Envelope){
		"nothing":          func(*event.Envelope) {},
		"OccurredAt":       func(e *event.Envelope) { e.OccurredAt = e.OccurredAt.Add(time.Second) },
		"Type":             func(e *event.Envelope) { e.Type = "other" },
		"Source":           func(e *event.Envelope) { e.Source = "other" },
		"SchemaID":         func(e *event.Envelope) { e.SchemaID = "other" },
		"SchemaVersion":    func(e *event.Envelope) { e.SchemaVersion = 7 },
		"TenantID":         func(e *event.Envelope) { e.TenantID = "other" },
		"AggregateType":    func(e *event.Envelope) { e.AggregateType = "other" },
		"AggregateID":      func(e *event.Envelope) { e.AggregateID = "other" },
		"AggregateVersion": func(e *event.Envelope) { e.AggregateVersion = 70 },
		"Topic":            func(e *event.Envelope) { e.Topic = "other" },
		"RoutingKey":       func(e *event.Envelope) { e.RoutingKey = "other" },
		"ContentType":      func(e *event.Envelope) { e.ContentType = "other/other" },
		"Metadata":         func(e *event.Envelope) { e.Metadata = event.Metadata{"k": "other"} },
		"Payload":          func(e *event.Envelope) { e.Payload = []byte("other") },
		"OrderingKey":      func(e *event.Envelope) { e.Delivery.OrderingKey = "other" },
		"MaxAttempts":      func(e *event.Envelope) { e.Delivery.MaxAttempts = 7 },
		"ExpiresAt":        func(e *event.Envelope) { e.Delivery.ExpiresAt = testTime.Add(1000 * time.Hour) },
	} {
		for _, n := range []int{2, 20} { // parameters of their own, and arrays
			t.Run(fmt.Sprint(name, n), func(t *testing.T) {
				var evs []event.Envelope
				for i := range n {
					evs = append(evs, event.Envelope{
						ID: newID(t), Type: "type", Source: "source", SchemaID: "schema", SchemaVersion: 1, TenantID: "tenant",
						AggregateType: "kind", AggregateID: "id", AggregateVersion: int64(i + 1), Topic: "topic", RoutingKey: "route",
						OccurredAt: testTime, ContentType: "text/plain", Metadata: event.Metadata{"k": "v"}, Payload: []byte("p"),
					})
				}
				change(&evs[n-1])
				f.Commit(func(tx bun.Tx) { require.NoError(t, f.Flush(t.Context(), tx, evs)) })
				stored := map[string]state.Row{}
				for _, row := range f.Fetch() {
					stored[row.ID] = row
				}
				for _, want := range evs {
					row := stored[want.ID]
					require.Equal(t, want.OrderingKey(), row.Key)
					require.WithinDuration(t, want.Delivery.ExpiresAt, row.Delivery.ExpiresAt, 0)
					row.Delivery.OrderingKey, row.Delivery.ExpiresAt = want.Delivery.OrderingKey, want.Delivery.ExpiresAt
					require.Equal(t, want, row.Envelope)
				}
				f.Exec("DELETE FROM outbox")
			})
		}
	}
}

// Keys may meet in one lane, and rows without a key are spread over the lanes.
func TestFlushKeepsWhatDiffersWithinALane(t *testing.T) {
	f := newFixture(t, nil)
	for name, change := range map[string]func(e *event.Envelope, to string){
		"TenantID":      func(e *event.Envelope, to string) { e.TenantID = to },
		"AggregateType": func(e *event.Envelope, to string) { e.AggregateType = to },
		"AggregateID":   func(e *event.Envelope, to string) { e.AggregateID = to },
		"nothing":       func(e *event.Envelope, _ string) { e.AggregateID, e.AggregateType = "", "" },
	} {
		t.Run(name, func(t *testing.T) {
			together, apart := 0, 0
			for i := 0; together == 0 || apart < 100; i++ { // ids are random, and 1 of 64 pairs meets
				require.Less(t, i, 5000, "%d met and %d did not", together, apart)
				evs := make([]event.Envelope, 2)
				for n := range evs {
					evs[n] = event.Envelope{
						ID: newID(t), Type: "type", Source: "source", TenantID: "t", AggregateType: "kind", AggregateID: "id",
						AggregateVersion: int64(n + 1), Topic: "topic", OccurredAt: testTime, ContentType: "text/plain",
					}
					change(&evs[n], fmt.Sprint((i+1)*(2*n+1)))
				}
				f.Commit(func(tx bun.Tx) { require.NoError(t, f.Flush(t.Context(), tx, evs)) })
				var tenants, kinds, ids []string
				var lanes []int16
				require.NoError(t, f.DB.NewRaw("SELECT tenant_id, aggregate_type, aggregate_id, lane FROM outbox ORDER BY seq").
					Scan(t.Context(), &tenants, &kinds, &ids, &lanes))
				for n, e := range evs {
					require.Equal(t, []string{e.TenantID, e.AggregateType, e.AggregateID}, []string{tenants[n], kinds[n], ids[n]})
				}
				if lanes[0] == lanes[1] {
					together++
				} else {
					apart++
				}
				f.Exec("DELETE FROM outbox")
			}
			require.Less(t, together, apart/4)
		})
	}
}
