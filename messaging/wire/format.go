package wire

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/oncebox/oncebox/event"
)

// Format writes and reads the properties of messages for one kind of broker. It is safe for concurrent use.
type Format struct {
	binding Binding
	texts   []string // the properties of texts
	numbers [len(numberNames)]string

	specVersion, schemaVersion, time, long string

	own       map[string]bool   // the properties that do not stand for metadata of the same name
	byKey     map[string]string // the properties of metadata with names of their own, by key
	keyByName map[string]string // and the reverse
}

// NewFormat returns the format of a binding.
func NewFormat(b Binding) *Format {
	b.ContentType = cmp.Or(b.ContentType, "content-type")
	f := &Format{
		binding:     b,
		specVersion: b.Prefix + SpecVersion, schemaVersion: b.Prefix + SchemaVersion, time: b.Prefix + Time,
		long: b.Prefix + Metadata,
		byKey: map[string]string{
			event.CorrelationID: b.Prefix + CorrelationID, event.CausationID: b.Prefix + CausationID,
			event.TraceParent: event.TraceParent, event.TraceState: event.TraceState,
		},
		keyByName: map[string]string{},
	}
	f.own = map[string]bool{f.specVersion: true, f.schemaVersion: true, f.time: true}
	for key, name := range f.byKey {
		f.keyByName[name] = key
		if name != key {
			f.own[name] = true
		}
	}
	if b.MaxName > 0 {
		f.own[f.long] = true
	}
	for _, name := range textNames {
		if name == PartitionKey && !b.CarriesKey {
			continue
		}
		property := b.Prefix + name
		if name == contentType {
			property = b.ContentType
		}
		f.texts = append(f.texts, property)
		f.own[property] = true
	}
	for n, name := range numberNames {
		f.numbers[n] = b.Prefix + name
		f.own[f.numbers[n]] = true
	}
	return f
}

// Property returns the property that carries an attribute: [ID] and so on.
func (f *Format) Property(attribute string) string { return f.binding.Prefix + attribute }

// Property is a property, or header, of a message.
type Property struct{ Name, Value string }

// Append appends everything of an envelope but its payload, and its routing key where the broker has keys, to props, and returns the extended
// slice. No two properties have the same name. For the same envelope they have the same order.
func (f *Format) Append(props []Property, env *event.Envelope) []Property {
	props = f.appendMetadata(props, env.Metadata)
	props = append(props, Property{f.specVersion, version})
	fields := texts(env)
	for n, name := range f.texts {
		if value := *fields[n]; value != "" {
			props = append(props, Property{name, f.encode(value)})
		}
	}
	for n, at := range numbers(env) {
		props = appendNumber(props, f.numbers[n], *at)
	}
	props = appendNumber(props, f.schemaVersion, int64(env.SchemaVersion))
	if !env.OccurredAt.IsZero() {
		props = append(props, Property{f.time, env.OccurredAt.UTC().Format(time.RFC3339Nano)})
	}
	return props
}

// usual is the number of properties that most messages do not exceed.
const usual = 24

// Properties is Append for brokers whose messages have maps. It writes into props, which it clears first, and returns props. nil makes a new map.
func (f *Format) Properties(props map[string]string, env *event.Envelope) map[string]string {
	var room [usual]Property
	list := f.Append(room[:0], env)
	if props == nil {
		props = make(map[string]string, len(list))
	}
	clear(props)
	for _, p := range list {
		props[p.Name] = p.Value
	}
	return props
}

// appendNumber leaves 0 out: an absent property means the zero value.
func appendNumber(props []Property, name string, n int64) []Property {
	if n == 0 {
		return props
	}
	return append(props, Property{name, strconv.FormatInt(n, 10)})
}

// appendMetadata writes each entry into a property of its own. Entries whose names are too long for the broker share one.
func (f *Format) appendMetadata(props []Property, md event.Metadata) []Property {
	first := len(props)
	var long map[string]string
	for key, value := range md {
		name := f.metadataProperty(key)
		if f.binding.MaxName > 0 && len(name) > f.binding.MaxName {
			if long == nil {
				long = map[string]string{}
			}
			long[key] = value
			continue
		}
		props = append(props, Property{name, f.encode(value)})
	}
	slices.SortFunc(props[first:], func(a, b Property) int { return strings.Compare(a.Name, b.Name) })
	if long != nil {
		text, _ := json.Marshal(long) //nolint:errchkjson // texts can always be encoded
		props = append(props, Property{f.long, f.encode(string(text))})
	}
	return props
}

// metadataProperty returns the property that carries a key of the metadata. Extension attributes of other programs keep their names.
func (f *Format) metadataProperty(key string) string {
	if name, ok := f.byKey[key]; ok {
		return name
	}
	if strings.HasPrefix(key, f.binding.Prefix) && !f.own[key] && f.encodeName(key) == key {
		return key
	}
	return MetaPrefix + f.encodeName(key)
}

// Size returns the number of bytes of the properties: names and values.
func Size(props map[string]string) (n int) {
	for name, value := range props {
		n += len(name) + len(value)
	}
	return n
}
