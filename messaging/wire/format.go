package wire

import (
	"cmp"
	"encoding/json"
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

// Properties writes everything of an envelope but its payload, and its routing key where the broker has keys, into props, which it clears
// first, and returns props. nil makes a new map.
func (f *Format) Properties(props map[string]string, env *event.Envelope) map[string]string {
	if props == nil {
		props = make(map[string]string, 12+len(env.Metadata))
	}
	clear(props)
	f.setMetadata(props, env.Metadata) // first, so that no key of the metadata can replace a field of the envelope
	props[f.specVersion] = version
	fields := texts(env)
	for n, property := range f.texts {
		if value := *fields[n]; value != "" {
			props[property] = f.encode(value)
		}
	}
	for n, at := range numbers(env) {
		setNumber(props, f.numbers[n], *at)
	}
	setNumber(props, f.schemaVersion, int64(env.SchemaVersion))
	if !env.OccurredAt.IsZero() {
		props[f.time] = env.OccurredAt.UTC().Format(time.RFC3339Nano)
	}
	return props
}

// setNumber leaves 0 out: an absent property means the zero value.
func setNumber(props map[string]string, name string, n int64) {
	if n != 0 {
		props[name] = strconv.FormatInt(n, 10)
	}
}

// setMetadata writes each entry into a property of its own. Entries whose names are too long for the broker share one.
func (f *Format) setMetadata(props map[string]string, md event.Metadata) {
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
		props[name] = f.encode(value)
	}
	if long != nil {
		text, _ := json.Marshal(long) //nolint:errchkjson // texts can always be encoded
		props[f.long] = f.encode(string(text))
	}
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
