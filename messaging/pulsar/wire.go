package pulsar

import (
	"bytes"
	"maps"
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
	propSpecVersion      = "ce_specversion"
	propID               = "ce_id"
	propType             = "ce_type"
	propSource           = "ce_source"
	propSubject          = "ce_subject"
	propTime             = "ce_time"
	propDataSchema       = "ce_dataschema"
	propTenantID         = "ce_tenantid"
	propAggregateType    = "ce_aggregatetype"
	propAggregateVersion = "ce_aggregateversion"
	propSequence         = "ce_sequence"
	propSchemaVersion    = "ce_schemaversion"
	propCorrelationID    = "ce_correlationid"
	propCausationID      = "ce_causationid"
	propContentType      = "content-type"
	metaPrefix           = "meta-"
	attributePrefix      = "ce_"

	specVersion = "1.0"
)

// metadataProps are the keys of the metadata that have a property of their own.
var metadataProps = map[string]string{ //nolint:gochecknoglobals // a constant
	event.CorrelationID: propCorrelationID,
	event.CausationID:   propCausationID,
	event.TraceParent:   event.TraceParent,
	event.TraceState:    event.TraceState,
}

// ownProps are the properties that stand for something else than metadata of their name.
var ownProps = map[string]bool{ //nolint:gochecknoglobals // a constant
	propSpecVersion: true, propID: true, propType: true, propSource: true, propSubject: true, propTime: true, propDataSchema: true,
	propTenantID: true, propAggregateType: true, propAggregateVersion: true, propSequence: true, propSchemaVersion: true,
	propCorrelationID: true, propCausationID: true,
}

// encode makes the message of an envelope. The payload is not copied.
func encode(env *event.Envelope) *pulsarclient.ProducerMessage {
	m := &pulsarclient.ProducerMessage{Payload: env.Payload, Key: env.RoutingKey, Properties: properties(env)}
	if m.Payload == nil {
		m.Payload = []byte{} // nil would make it a tombstone
	}
	// Pulsar counts milliseconds from 1970 and the client nanoseconds up to 2262; what is outside travels as ce_time only.
	if ms := env.OccurredAt.UnixMilli(); ms > 0 && ms < math.MaxInt64/int64(time.Millisecond) {
		m.EventTime = env.OccurredAt
	}
	return m
}

func properties(env *event.Envelope) map[string]string {
	props := make(map[string]string, 12+len(env.Metadata))
	for key, value := range env.Metadata {
		props[metadataProp(key)] = value
	}
	props[propSpecVersion] = specVersion
	for _, p := range []struct{ name, value string }{
		{propID, env.ID}, {propType, env.Type}, {propSource, env.Source}, {propSubject, env.AggregateID}, {propDataSchema, env.SchemaID},
		{propTenantID, env.TenantID}, {propAggregateType, env.AggregateType}, {propContentType, env.ContentType},
	} {
		if p.value != "" {
			props[p.name] = p.value
		}
	}
	for _, p := range []struct {
		name  string
		value int64
	}{{propAggregateVersion, env.AggregateVersion}, {propSequence, env.Sequence}, {propSchemaVersion, int64(env.SchemaVersion)}} {
		if p.value != 0 {
			props[p.name] = strconv.FormatInt(p.value, 10)
		}
	}
	if !env.OccurredAt.IsZero() {
		props[propTime] = env.OccurredAt.UTC().Format(time.RFC3339Nano)
	}
	return props
}

// metadataProp returns the property that carries a key of the metadata. Extension attributes of others keep their name.
func metadataProp(key string) string {
	if own, ok := metadataProps[key]; ok {
		return own
	}
	if strings.HasPrefix(key, attributePrefix) && !ownProps[key] {
		return key
	}
	return metaPrefix + key
}

// decode makes the envelope of a message that was received from a topic. Everything in it is the envelope's own.
func decode(m pulsarclient.Message, topic string) event.Envelope {
	props := m.Properties()
	env := event.Envelope{
		Topic: topic, RoutingKey: m.Key(), Metadata: make(event.Metadata, len(props)), Payload: bytes.Clone(m.Payload()),
	}
	rest := maps.Clone(props)
	for _, p := range []struct {
		name  string
		field *string
	}{
		{propID, &env.ID}, {propType, &env.Type}, {propSource, &env.Source}, {propSubject, &env.AggregateID}, {propDataSchema, &env.SchemaID},
		{propTenantID, &env.TenantID}, {propAggregateType, &env.AggregateType}, {propContentType, &env.ContentType},
	} {
		*p.field = rest[p.name]
		delete(rest, p.name)
	}
	if rest[propSpecVersion] == specVersion {
		delete(rest, propSpecVersion)
	}
	schemaVersion := int64(0)
	for _, p := range []struct {
		name  string
		field *int64
	}{{propAggregateVersion, &env.AggregateVersion}, {propSequence, &env.Sequence}, {propSchemaVersion, &schemaVersion}} {
		// Somebody else's idea of a number stays what it is, as metadata.
		if n, err := strconv.ParseInt(rest[p.name], 10, 64); err == nil && n >= 0 {
			*p.field = n
			delete(rest, p.name)
		}
	}
	env.SchemaVersion = int(schemaVersion)
	env.OccurredAt = occurredAt(m, rest)
	decodeMetadata(env.Metadata, rest)
	if props[propID] == "" {
		adopt(&env, m)
	}
	return env
}

// occurredAt prefers ce_time, because Pulsar's own time ends at milliseconds.
func occurredAt(m pulsarclient.Message, rest map[string]string) time.Time {
	if t, err := time.Parse(time.RFC3339Nano, rest[propTime]); err == nil {
		delete(rest, propTime)
		return t.UTC()
	}
	// Without one it reads as 1970 and not as zero.
	if t := m.EventTime(); t.UnixMilli() > 0 {
		return t.UTC()
	}
	return time.Time{}
}

// decodeMetadata sorts what is left of the properties into md. If two of them want to be the same key, what we wrote
// wins over what somebody else added.
func decodeMetadata(md event.Metadata, rest map[string]string) {
	for key, name := range metadataProps {
		if value, ok := rest[name]; ok {
			md[key] = value
			delete(rest, name)
		}
	}
	for name, value := range rest {
		if key, ours := strings.CutPrefix(name, metaPrefix); ours {
			keep(md, key, value)
			delete(rest, name)
		}
	}
	for name, value := range rest {
		keep(md, name, value)
	}
}

func keep(md event.Metadata, key, value string) {
	if _, taken := md[key]; !taken {
		md[key] = value
	}
}

// adopt gives a message of somebody who does not speak CloudEvents what it needs to be handled once: where it lies is
// its identity.
func adopt(env *event.Envelope, m pulsarclient.Message) {
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

// sizeOnWire is an upper bound of what the message takes, as far as the broker's limit is concerned. Properties count
// twice: a batch repeats those of its first message in its header.
func sizeOnWire(m *pulsarclient.ProducerMessage) int {
	n := len(m.Key)
	for name, value := range m.Properties {
		n += len(name) + len(value) + 8 // a tag and a length each
	}
	return len(m.Payload) + 2*n + 4<<10
}
