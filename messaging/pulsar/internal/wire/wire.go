// Package wire turns envelopes into Pulsar's messages and back: CloudEvents in binary mode, as properties of a message.
//
// Read first: wire.go:Fill and wire.go:decode, then unreadable.go:Limits.Envelope.
package wire

import (
	"bytes"
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

// ownProps are the properties that do not stand for metadata of the same name.
var ownProps = map[string]bool{ //nolint:gochecknoglobals // a constant
	PropSpecVersion: true, PropID: true, PropType: true, PropSource: true, PropSubject: true, PropTime: true, PropDataSchema: true,
	PropTenantID: true, PropAggregateType: true, PropAggregateVersion: true, PropSequence: true, PropSchemaVersion: true,
	PropCorrelationID: true, PropCausationID: true, PropOrderingKey: true,
}

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

func setProperties(props map[string]string, env *event.Envelope) {
	for key, value := range env.Metadata {
		props[metadataProp(key)] = value
	}
	props[PropSpecVersion] = specVersion
	for _, p := range []struct{ name, value string }{
		{PropID, env.ID}, {PropType, env.Type}, {PropSource, env.Source}, {PropSubject, env.AggregateID}, {PropDataSchema, env.SchemaID},
		{PropTenantID, env.TenantID}, {PropAggregateType, env.AggregateType}, {PropContentType, env.ContentType},
		{PropOrderingKey, env.Delivery.OrderingKey},
	} {
		if p.value != "" {
			props[p.name] = p.value
		}
	}
	for _, p := range []struct {
		name  string
		value int64
	}{{PropAggregateVersion, env.AggregateVersion}, {PropSequence, env.Sequence}, {PropSchemaVersion, int64(env.SchemaVersion)}} {
		if p.value != 0 {
			props[p.name] = strconv.FormatInt(p.value, 10)
		}
	}
	if !env.OccurredAt.IsZero() {
		props[PropTime] = env.OccurredAt.UTC().Format(time.RFC3339Nano)
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

// metadataKey returns the key of the metadata for a property of its own, "" if the property has no such key.
func metadataKey(prop string) string {
	switch prop {
	case PropCorrelationID:
		return event.CorrelationID
	case PropCausationID:
		return event.CausationID
	case event.TraceParent, event.TraceState:
		return prop
	default:
		return ""
	}
}

// decode makes the envelope of a message that was received from a topic. The envelope shares no map with the message, which may be
// delivered again.
func decode(m pulsarclient.Message, topic string) event.Envelope {
	props := m.Properties()
	env := event.Envelope{
		Topic: topic, RoutingKey: m.Key(), Metadata: make(event.Metadata, min(len(props), 4)), Payload: bytes.Clone(m.Payload()),
	}
	var few [8]property
	rest := few[:0]
	for name, value := range props {
		if !takeIdentifier(&env, name, value) && !takeValue(&env, name, value) {
			rest = append(rest, property{name, value})
		}
	}
	decodeMetadata(env.Metadata, rest)
	if env.OccurredAt.IsZero() && m.EventTime().UnixMilli() > 0 && canBeWritten(m.EventTime()) { // no time is 1970, not zero
		env.OccurredAt = m.EventTime().UTC()
	}
	if env.ID == "" {
		completeForeign(&env, m)
	}
	return env
}

type property struct{ name, value string }

func takeIdentifier(env *event.Envelope, name, value string) bool {
	switch name {
	case PropID:
		env.ID = value
	case PropType:
		env.Type = value
	case PropSource:
		env.Source = value
	case PropSubject:
		env.AggregateID = value
	case PropDataSchema:
		env.SchemaID = value
	case PropTenantID:
		env.TenantID = value
	case PropAggregateType:
		env.AggregateType = value
	case PropContentType:
		env.ContentType = value
	case PropOrderingKey:
		env.Delivery.OrderingKey = value
	default:
		return false
	}
	return true
}

// takeValue sets the field of a property. It returns false if the value, of another program perhaps, is not a valid version, number or
// time; the property then becomes metadata.
func takeValue(env *event.Envelope, name, value string) bool {
	switch name {
	case PropSpecVersion:
		return value == specVersion
	case PropAggregateVersion, PropSequence, PropSchemaVersion:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 || name == PropSchemaVersion && n > math.MaxInt32 {
			return false
		}
		switch name {
		case PropAggregateVersion:
			env.AggregateVersion = n
		case PropSequence:
			env.Sequence = n
		default:
			env.SchemaVersion = int(n)
		}
		return true
	case PropTime: // preferred to Pulsar's own time, which has only milliseconds
		t, err := time.Parse(time.RFC3339Nano, value)
		if err != nil || !canBeWritten(t) {
			return false
		}
		env.OccurredAt = t.UTC()
		return true
	default:
		return false
	}
}

// canBeWritten reports whether RFC 3339 can express the year of t, in UTC.
func canBeWritten(t time.Time) bool { return t.UTC().Year() >= 1 && t.UTC().Year() <= 9999 }

// decodeMetadata puts the remaining properties into md. If two properties stand for the same key, the property in the format of oncebox
// wins over the property of another program.
func decodeMetadata(md event.Metadata, rest []property) {
	for _, p := range rest {
		if key := metadataKey(p.name); key != "" {
			md[key] = p.value
		}
	}
	for _, p := range rest {
		if key, ours := strings.CutPrefix(p.name, MetaPrefix); ours {
			keep(md, key, p.value)
		}
	}
	for _, p := range rest {
		if !strings.HasPrefix(p.name, MetaPrefix) && metadataKey(p.name) == "" {
			keep(md, p.name, p.value)
		}
	}
}

func keep(md event.Metadata, key, value string) {
	if _, taken := md[key]; !taken {
		md[key] = value
	}
}

// completeForeign completes the envelope of a message whose producer does not use CloudEvents: its place in the topic becomes its id, so that it is
// handled once.
func completeForeign(env *event.Envelope, m pulsarclient.Message) {
	env.ID = env.Topic + "@" + m.ID().String()
	if env.Source == "" {
		env.Source = m.Topic()
	}
	if env.Type == "" {
		env.Type = env.Topic
	}
	if env.OccurredAt.IsZero() {
		env.OccurredAt = m.PublishTime().UTC()
	}
}

// Size returns an upper bound of the message's size, to compare with the broker's limit. Properties count twice: a batch repeats the
// properties of its first message in its header.
func Size(m *pulsarclient.ProducerMessage) int {
	n := len(m.Key)
	for name, value := range m.Properties {
		n += len(name) + len(value) + 8 // a tag and a length each
	}
	return len(m.Payload) + 2*n + 4<<10
}
