package wire

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

const (
	// KeptPayload is how much of the payload of an unreadable message is kept for the reader of its dead letter, in bytes.
	KeptPayload = 64 << 10
	// KeptProperties is how many bytes of the properties are kept in all, and keptProperty how many bytes one property may have to be kept.
	KeptProperties = 64 << 10
	keptProperty   = 4 << 10
)

// Limits say which messages are taken as they are, in bytes.
type Limits struct {
	MaxReceived int // of a message with its properties; -1: no limit
	MaxMessage  int // what the broker takes: a message that came in chunks is larger
}

// Envelope returns the envelope of a message that was received from a topic. For an unreadable message it has only parts, and the reason:
// see [messaging.UnreadableKey].
func (l Limits) Envelope(m pulsarclient.Message, topic string) event.Envelope {
	reason := l.unreadable(m)
	if reason == "" {
		return decode(m, topic)
	}
	env := decode(partOf(m), topic)
	env.Metadata[messaging.UnreadableKey] = reason
	return env
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
		if !takeText(&env, name, value) && !takeValue(&env, name, value) {
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

// takeText sets the field of a property that is a text. It returns false for other properties.
func takeText(env *event.Envelope, name, value string) bool {
	for _, t := range texts(env) {
		if t.property == name {
			*t.at = value
			return true
		}
	}
	return false
}

// takeValue sets the field of a property. It returns false if the value, of another program perhaps, is not a valid version, number or
// time; the property then becomes metadata.
func takeValue(env *event.Envelope, name, value string) bool {
	switch name {
	case PropSpecVersion:
		return value == specVersion
	case PropSchemaVersion:
		n, ok := parseNumber(value, math.MaxInt32)
		if ok {
			env.SchemaVersion = int(n)
		}
		return ok
	case PropTime: // preferred to Pulsar's own time, which has only milliseconds
		t, err := time.Parse(time.RFC3339Nano, value)
		if err != nil || !canBeWritten(t) {
			return false
		}
		env.OccurredAt = t.UTC()
		return true
	}
	for _, f := range numbers(env) {
		if f.property == name {
			n, ok := parseNumber(value, math.MaxInt64)
			if ok {
				*f.at = n
			}
			return ok
		}
	}
	return false
}

// parseNumber refuses negative numbers: no number of an envelope is negative.
func parseNumber(value string, most int64) (n int64, ok bool) {
	n, err := strconv.ParseInt(value, 10, 64)
	return n, err == nil && n >= 0 && n <= most
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

// keep does not overwrite: the first call for a key is that with the higher rank.
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

// unreadable returns the reason why a message is not what was sent, "" if it is complete.
func (l Limits) unreadable(m pulsarclient.Message) string {
	if sealed := m.GetEncryptionContext(); sealed != nil {
		if n := sealed.BatchSize; n > 1 {
			return fmt.Sprintf("it is a batch of %d messages that were encrypted by Pulsar's client, and this consumer has no key for them", n)
		}
		return "its payload was encrypted by Pulsar's client, and this consumer has no key for it"
	}
	if n := Received(m); n > l.MaxReceived && l.MaxReceived > 0 {
		return fmt.Sprintf("it has %d bytes, more than the %d of pulsar.Config.MaxReceivedBytes (ONCEBOX_PULSAR_MAX_RECEIVED_BYTES)",
			n, l.MaxReceived)
	}
	if isChunked(m.ID()) && len(m.Payload()) <= l.MaxMessage {
		return "it came in chunks and is smaller than a message that needs them: the client may have lost all but the last of its chunks, " +
			"because the sender, in C++ or Python as a rule, does not compress; or the message is whole, and its sender makes chunks that are " +
			"smaller than the broker takes (chunkMaxMessageSize in Java, ChunkMaxMessageSize in Go): leave that setting at its default"
	}
	return ""
}

// isChunked reports whether a message came in chunks: then the client (0.21.0) writes its first and its last place into the id.
//
// The client joins the chunks. But if the metadata lacks uncompressed_size, which clients for C++ and Python leave out without compression,
// it delivers the last chunk alone. Chunks of those clients are as large as the broker allows (Config.MaxMessageBytes), so a larger message
// is complete. A smaller message may be complete as well, if its sender makes smaller chunks. The client reports neither the number nor the
// size of the chunks, and a dead letter does less harm than a handler that gets only the end of a message. A message in a batch never has
// chunks (PIP 37); that check comes first, because the text of an id is costly.
func isChunked(id pulsarclient.MessageID) bool {
	return id.BatchSize() <= 1 && strings.Contains(id.String(), ";")
}

// Received is the size of a message in this process, in bytes.
func Received(m pulsarclient.Message) int {
	n := len(m.Payload()) + len(m.Key())
	for name, value := range m.Properties() {
		n += len(name) + len(value)
	}
	return n
}

// part holds the parts of an unreadable message that are kept.
type part struct {
	pulsarclient.Message

	key        string
	properties map[string]string
}

func (p part) Payload() []byte {
	return p.Message.Payload()[:min(len(p.Message.Payload()), KeptPayload)]
}
func (p part) Key() string                   { return p.key }
func (p part) Properties() map[string]string { return p.properties }

// partOf keeps short properties, beginning with the properties that identify the message. The properties and the key of an encrypted batch
// belong to its first message and say nothing about the others, so such a message is identified by its place in the topic.
func partOf(m pulsarclient.Message) part {
	p := part{Message: m, properties: map[string]string{}}
	if sealed := m.GetEncryptionContext(); sealed != nil && sealed.BatchSize > 1 {
		return p
	}
	if len(m.Key()) <= keptProperty {
		p.key = m.Key()
	}
	room := KeptProperties
	for _, own := range []bool{true, false} {
		// Map order is random, so which of many short properties are kept differs. The identifying ones come first.
		for name, value := range m.Properties() {
			if n := len(name) + len(value); ownProps[name] == own && n <= min(room, keptProperty) {
				p.properties[name] = value
				room -= n
			}
		}
	}
	return p
}
