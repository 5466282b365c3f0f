// Package wire turns envelopes into messages of Pulsar's client and back. The properties are those of [github.com/oncebox/oncebox/messaging/wire].
//
// Read first: wire.go:Fill, then limits.go:Limits.Envelope.
package wire

import (
	"math"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging/wire"
)

// format is that of Pulsar. CloudEvents has no binding for it; this one is modelled on that for Kafka.
var format = wire.NewFormat(wire.Binding{Prefix: "ce_"}) //nolint:gochecknoglobals // a constant

// Encode makes the message of an envelope. The payload is not copied.
func Encode(env *event.Envelope) *pulsarclient.ProducerMessage {
	return Fill(&pulsarclient.ProducerMessage{}, env)
}

// Fill is Encode into a message that was sent before: it reuses the map of properties.
func Fill(m *pulsarclient.ProducerMessage, env *event.Envelope) *pulsarclient.ProducerMessage {
	*m = pulsarclient.ProducerMessage{Payload: env.Payload, Key: env.RoutingKey, Properties: format.Properties(m.Properties, env)}
	if m.Payload == nil {
		m.Payload = []byte{} // nil would make it a tombstone
	}
	// Pulsar counts milliseconds from 1970, and the client nanoseconds up to 2262; other times travel as ce_time only.
	if ms := env.OccurredAt.UnixMilli(); ms > 0 && ms < math.MaxInt64/int64(time.Millisecond) {
		m.EventTime = env.OccurredAt
	}
	return m
}

// Size returns an upper bound of the message's size, to compare with the broker's limit. It is not the number of bytes that are sent. Properties count twice:
// a batch repeats the properties of its first message in its header.
func Size(m *pulsarclient.ProducerMessage) int {
	tags := 8 * len(m.Properties) // a tag and a length for each name and each value
	return len(m.Payload) + 2*(len(m.Key)+wire.Size(m.Properties)+tags) + 4<<10
}
