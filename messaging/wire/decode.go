package wire

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// Received is a message as a broker has delivered it.
type Received struct {
	// Topic is the logical topic. Required.
	Topic string
	// Key is the broker's key of the message. A binding that carries the key in a property leaves it empty.
	Key string
	// Properties are the properties, or headers, of the message. They are only read.
	Properties map[string]string
	// Payload is the body of the message. It is only read.
	Payload []byte
	// Time is the time of the event, if the broker has one for each message.
	Time time.Time

	// Place identifies the message within its topic. It becomes a part of the id of a message that has none. Required.
	Place func() string
	// Origin is the broker's name of the topic, the source of a message that has none.
	Origin string
	// Published is the time when the broker got the message, the time of an event that has none.
	Published time.Time

	// Unreadable is the reason why the message is not what was sent, empty if it is complete: see [messaging.UnreadableKey].
	Unreadable string
}

// Size returns the size of the message in this process, in bytes.
func (r *Received) Size() int { return len(r.Payload) + len(r.Key) + Size(r.Properties) }

// Envelope returns the envelope of a received message. It shares nothing with r. For an unreadable message it has only parts, and the
// reason: see [messaging.UnreadableKey].
func (f *Format) Envelope(r *Received) event.Envelope {
	if r.Unreadable == "" {
		return f.envelope(r)
	}
	env := f.envelope(f.partOf(r))
	env.Metadata[messaging.UnreadableKey] = r.Unreadable
	return env
}

func (f *Format) envelope(r *Received) event.Envelope {
	env := event.Envelope{
		Topic: r.Topic, RoutingKey: r.Key, Metadata: make(event.Metadata, min(len(r.Properties), 4)), Payload: bytes.Clone(r.Payload),
	}
	var few [8]Property
	rest := few[:0]
	for name, value := range r.Properties {
		if !f.takeText(&env, name, value) && !f.takeValue(&env, name, value) {
			rest = append(rest, Property{name, value})
		}
	}
	f.takeMetadata(env.Metadata, rest)
	if env.OccurredAt.IsZero() && canBeWritten(r.Time) {
		env.OccurredAt = r.Time.UTC()
	}
	if env.ID == "" {
		completeForeign(&env, r)
	}
	return env
}

// takeText sets the field of a property that is a text. It returns false for other properties.
func (f *Format) takeText(env *event.Envelope, name, value string) bool {
	n := slices.Index(f.texts, name)
	if n < 0 {
		return false
	}
	*texts(env)[n] = f.decode(value)
	return true
}

// takeValue sets the field of a property. It returns false if the value, of another program perhaps, is not a valid version, number or
// time; the property then becomes metadata.
func (f *Format) takeValue(env *event.Envelope, name, value string) bool {
	switch name {
	case f.specVersion:
		return value == version
	case f.schemaVersion:
		n, ok := parseNumber(value, math.MaxInt32)
		if ok {
			env.SchemaVersion = int(n)
		}
		return ok
	case f.time: // preferred to the broker's own time, which has only milliseconds
		t, err := time.Parse(time.RFC3339Nano, f.decode(value))
		if err != nil || !canBeWritten(t) {
			return false
		}
		env.OccurredAt = t.UTC()
		return true
	}
	n := slices.Index(f.numbers[:], name)
	if n < 0 {
		return false
	}
	parsed, ok := parseNumber(value, math.MaxInt64)
	if ok {
		*numbers(env)[n] = parsed
	}
	return ok
}

// parseNumber refuses negative numbers: no number of an envelope is negative.
func parseNumber(value string, most int64) (n int64, ok bool) {
	n, err := strconv.ParseInt(value, 10, 64)
	return n, err == nil && n >= 0 && n <= most
}

// canBeWritten reports whether RFC 3339 can express the year of t, in UTC. The zero time means that there is no time.
func canBeWritten(t time.Time) bool {
	return !t.IsZero() && t.UTC().Year() >= 1 && t.UTC().Year() <= 9999
}

// takeMetadata puts the remaining properties into md. If two properties stand for the same key, the property in the format of oncebox
// wins over the property of another program.
func (f *Format) takeMetadata(md event.Metadata, rest []Property) {
	for _, p := range rest {
		if key := f.keyByName[p.Name]; key != "" {
			md[key] = f.decode(p.Value)
		}
	}
	for _, p := range rest {
		if key, ours := strings.CutPrefix(p.Name, MetaPrefix); ours {
			keep(md, f.decode(key), f.decode(p.Value))
		}
	}
	for _, p := range rest {
		if f.isLong(p.Name) {
			p.Value = f.decode(p.Value)
			if f.takeLong(md, p.Value) {
				continue
			}
		}
		if !strings.HasPrefix(p.Name, MetaPrefix) && f.keyByName[p.Name] == "" {
			if strings.HasPrefix(p.Name, f.binding.Prefix) { // an attribute of CloudEvents that is an extension
				p.Value = f.decode(p.Value)
			}
			keep(md, p.Name, p.Value)
		}
	}
}

func (f *Format) isLong(name string) bool { return f.binding.MaxName > 0 && name == f.long }

// takeLong reads the property that entries with long names share. It returns false if the value is that of another program.
func (f *Format) takeLong(md event.Metadata, value string) bool {
	var long map[string]string
	if json.Unmarshal([]byte(value), &long) != nil {
		return false
	}
	for key, value := range long {
		keep(md, key, value)
	}
	return true
}

// keep does not overwrite: the first call for a key is that with the higher rank.
func keep(md event.Metadata, key, value string) {
	if _, taken := md[key]; !taken {
		md[key] = value
	}
}

// completeForeign completes the envelope of a message whose producer does not use CloudEvents: its place in the topic becomes its id, so that it is
// handled once.
func completeForeign(env *event.Envelope, r *Received) {
	env.ID = env.Topic + "@" + r.Place()
	if env.Source == "" {
		env.Source = r.Origin
	}
	if env.Type == "" {
		env.Type = env.Topic
	}
	if env.OccurredAt.IsZero() {
		env.OccurredAt = r.Published.UTC()
	}
}
