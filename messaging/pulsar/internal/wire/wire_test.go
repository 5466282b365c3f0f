package wire

import (
	"maps"
	"strings"
	"testing"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
)

// wireMessage is a message as it comes out of the broker.
type wireMessage struct {
	pulsarclient.Message

	payload    []byte
	key        string
	properties map[string]string
	eventTime  time.Time
	sealed     *pulsarclient.EncryptionContext
}

func (m *wireMessage) Payload() []byte                                       { return m.payload }
func (m *wireMessage) Key() string                                           { return m.key }
func (m *wireMessage) GetEncryptionContext() *pulsarclient.EncryptionContext { return m.sealed }
func (m *wireMessage) Properties() map[string]string                         { return m.properties }
func (*wireMessage) Topic() string                                           { return "persistent://public/default/order-partition-1" }
func (*wireMessage) ID() pulsarclient.MessageID                              { return pulsarclient.NewMessageID(12, 34, 5, 1) }
func (*wireMessage) PublishTime() time.Time                                  { return time.UnixMilli(1_700_000_000_123) }

func (m *wireMessage) EventTime() time.Time {
	if m.eventTime.IsZero() {
		return time.Unix(0, 0) // as the client has it
	}
	return time.UnixMilli(m.eventTime.UnixMilli())
}

func decode(m pulsarclient.Message, topic string) event.Envelope {
	return Limits{MaxReceived: -1}.Envelope(m, topic)
}

// carry takes a message over the wire.
func carry(m *pulsarclient.ProducerMessage) *wireMessage {
	return &wireMessage{payload: m.Payload, key: m.Key, properties: maps.Clone(m.Properties), eventTime: m.EventTime}
}

func TestWire(t *testing.T) {
	m := Encode(&event.Envelope{
		ID: "id-1", Type: "order.placed", Source: "shop", SchemaID: "https://schemas.example/order", SchemaVersion: 3, TenantID: "t1",
		AggregateType: "order", AggregateID: "o-7", AggregateVersion: 4, Sequence: 99, Topic: "order", RoutingKey: "o-7",
		OccurredAt:  time.Date(2025, 1, 2, 3, 4, 5, 678_901_000, time.FixedZone("", 3600)),
		ContentType: "application/json",
		Metadata: event.Metadata{
			event.CorrelationID: "c1", event.CausationID: "c2", event.TraceParent: "tp", event.TraceState: "ts",
			"region": "eu", "ce_extension": "x", "ce_id": "y",
		},
		Payload:  []byte(`{"a":1}`),
		Delivery: event.Delivery{OrderingKey: "o-7", DedupKey: "stays at home", MaxAttempts: 1, ExpiresAt: time.Now()},
	})
	require.Equal(t, map[string]string{
		"ce_specversion": "1.0", "ce_id": "id-1", "ce_type": "order.placed", "ce_source": "shop", "ce_subject": "o-7",
		"ce_time": "2025-01-02T02:04:05.678901Z", "content-type": "application/json", "ce_dataschema": "https://schemas.example/order",
		"ce_tenantid": "t1", "ce_aggregatetype": "order", "ce_aggregateversion": "4", "ce_sequence": "99", "ce_schemaversion": "3",
		"ce_correlationid": "c1", "ce_causationid": "c2", "ce_orderingkey": "o-7", "traceparent": "tp", "tracestate": "ts",
		"meta-region": "eu", "ce_extension": "x", "meta-ce_id": "y",
	}, m.Properties)
	require.Equal(t, "o-7", m.Key)
	require.Equal(t, `{"a":1}`, string(m.Payload))
	require.EqualValues(t, 1735783445678, m.EventTime.UnixMilli())
}

func TestWireLeavesOutWhatIsNotSet(t *testing.T) {
	m := Encode(&event.Envelope{ID: "1"})
	require.Equal(t, map[string]string{"ce_specversion": "1.0", "ce_id": "1"}, m.Properties)
	require.NotNil(t, m.Payload, "nil would be a tombstone")
	require.True(t, m.EventTime.IsZero())
}

func TestForeignMessage(t *testing.T) {
	foreign := &wireMessage{
		payload: []byte("x"), key: "k",
		properties: map[string]string{"color": "red", "meta-size": "L", "ce_sequence": "not a number", "ce_aggregateversion": "-1", "ce_specversion": "0.3",
			"ce_schemaversion": "2147483648"},
	}
	env := decode(foreign, "order")
	require.Equal(t, event.Envelope{
		ID: "order@12:34:1:5", Type: "order", Source: "persistent://public/default/order-partition-1", Topic: "order", RoutingKey: "k",
		OccurredAt: foreign.PublishTime().UTC(), Payload: []byte("x"),
		Metadata: event.Metadata{"color": "red", "size": "L", "ce_sequence": "not a number", "ce_aggregateversion": "-1", "ce_specversion": "0.3",
			"ce_schemaversion": "2147483648"},
	}, env)

	foreign.eventTime = time.UnixMilli(1_600_000_000_001)
	require.EqualValues(t, 1_600_000_000_001, decode(foreign, "order").OccurredAt.UnixMilli())

	// Sent on, it stays the same message with the same properties.
	again := decode(carry(Encode(&env)), "order")
	require.Equal(t, env, again)
}

func TestForeignPropertiesNeverReplaceOurs(t *testing.T) {
	env := decode(&wireMessage{properties: map[string]string{
		"ce_id": "1", "ce_correlationid": "ours", "correlation_id": "theirs", "meta-correlation_id": "theirs too", "meta-x": "ours", "x": "theirs",
	}}, "order")
	require.Equal(t, event.Metadata{event.CorrelationID: "ours", "x": "ours"}, env.Metadata)
}

func TestDecodeSharesNothing(t *testing.T) {
	m := &wireMessage{payload: []byte("x"), properties: map[string]string{"ce_id": "1", "a": "b"}}
	first := decode(m, "order")
	first.Payload[0], first.Metadata["a"] = 'y', "changed"
	second := decode(m, "order")
	require.Equal(t, "x", string(second.Payload))
	require.Equal(t, "b", second.Metadata["a"])
}

func TestSizeOnWireIsAnUpperBound(t *testing.T) {
	env := event.Envelope{ID: "1", RoutingKey: strings.Repeat("k", 100), Payload: make([]byte, 10_000)}
	env.Metadata = event.Metadata{"m": strings.Repeat("v", 1000)}
	require.Greater(t, Size(Encode(&env)), 10_000+2*(100+1000))
	require.Less(t, Size(Encode(&env)), 10_000+2*(100+1000)+5<<10)
}
