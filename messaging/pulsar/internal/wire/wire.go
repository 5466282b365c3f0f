// Package wire turns envelopes into Pulsar's messages and back: CloudEvents in binary mode, as properties of a message.
//
// Read first: wire.go:Fill, then decode.go:Limits.Envelope and decode.go:decode.
package wire

import (
	"math"
	"strconv"
	"strings"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/oncebox/oncebox/event"
)

// The properties of a message, CloudEvents in binary mode. The specification has no binding for Pulsar; this one is
// modelled on that for Kafka.
const (
	PropSpecVersion      = "ce_specversion"
	PropID               = "ce_id"
	PropType             = "ce_type"
	PropSource           = "ce_source"
	PropSubject          = "ce_subject"
	PropTime             = "ce_time"
	PropDataSchema       = "ce_dataschema"
	PropTenantID         = "ce_tenantid"
	PropAggregateType    = "ce_aggregatetype"
	PropAggregateVersion = "ce_aggregateversion"
	PropSequence         = "ce_sequence"
	PropSchemaVersion    = "ce_schemaversion"
	PropCorrelationID    = "ce_correlationid"
	PropCausationID      = "ce_causationid"
	PropOrderingKey      = "ce_orderingkey"
	PropContentType      = "content-type"
	MetaPrefix           = "meta-"
	attributePrefix      = "ce_"

	specVersion = "1.0"
)

// Encode makes the message of an envelope. The payload is not copied.
func Encode(env *event.Envelope) *pulsarclient.ProducerMessage {
	return Fill(&pulsarclient.ProducerMessage{}, env)
}

// Fill is Encode into a message that was sent before: it reuses the map of properties.
func Fill(m *pulsarclient.ProducerMessage, env *event.Envelope) *pulsarclient.ProducerMessage {
	props := m.Properties
	if props == nil {
		props = make(map[string]string, 12+len(env.Metadata))
	}
	clear(props)
	setProperties(props, env)
	*m = pulsarclient.ProducerMessage{Payload: env.Payload, Key: env.RoutingKey, Properties: props}
	if m.Payload == nil {
		m.Payload = []byte{} // nil would make it a tombstone
	}
	// Pulsar counts milliseconds from 1970, and the client nanoseconds up to 2262; other times travel as ce_time only.
	if ms := env.OccurredAt.UnixMilli(); ms > 0 && ms < math.MaxInt64/int64(time.Millisecond) {
		m.EventTime = env.OccurredAt
	}
	return m
}

// setProperties writes metadata first, so that no key of the metadata can replace a field of the envelope.
func setProperties(props map[string]string, env *event.Envelope) {
	for key, value := range env.Metadata {
		props[metadataProp(key)] = value
	}
	props[PropSpecVersion] = specVersion
	for _, t := range texts(env) {
		if *t.at != "" {
			props[t.property] = *t.at
		}
	}
	for _, n := range numbers(env) {
		setNumber(props, n.property, *n.at)
	}
	setNumber(props, PropSchemaVersion, int64(env.SchemaVersion))
	if !env.OccurredAt.IsZero() {
		props[PropTime] = env.OccurredAt.UTC().Format(time.RFC3339Nano)
	}
}

// setNumber leaves 0 out, as texts leave "" out: an absent property means the zero value.
func setNumber(props map[string]string, name string, n int64) {
	if n != 0 {
		props[name] = strconv.FormatInt(n, 10)
	}
}

// metadataProp returns the property that carries a key of the metadata. Extension attributes of other programs keep their names.
func metadataProp(key string) string {
	switch key {
	case event.CorrelationID:
		return PropCorrelationID
	case event.CausationID:
		return PropCausationID
	case event.TraceParent, event.TraceState:
		return key
	}
	if strings.HasPrefix(key, attributePrefix) && !ownProps[key] {
		return key
	}
	return MetaPrefix + key
}

// Size returns an upper bound of the message's size, to compare with the broker's limit. It is not the number of bytes that are sent. Properties count twice:
// a batch repeats the properties of its first message in its header.
func Size(m *pulsarclient.ProducerMessage) int {
	n := len(m.Key)
	for name, value := range m.Properties {
		n += len(name) + len(value) + 8 // a tag and a length each
	}
	return len(m.Payload) + 2*n + 4<<10
}
