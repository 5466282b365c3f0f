// Package binding is the form of messages at NATS: that of the CloudEvents binding, in binary mode.
//
// Read first: message.go:Encode.
// Package binding is the form of messages at NATS: that of the CloudEvents binding, in binary mode.
//
// Read first: message.go:Encode.
package binding

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/wire"
)

// format is that of the CloudEvents binding for NATS, binary mode. The routing key is an attribute, because messages have no key.
var format = wire.NewFormat(wire.Binding{ //nolint:gochecknoglobals // a constant
	Prefix: "ce-", ContentType: "ce-datacontenttype", CarriesKey: true, Encodes: true,
})

const (
	// metadataBytes is the header that says how many bytes of the data, at its beginning, are metadata, as JSON: JetStream allows 64 KiB of headers, and
	// percent-encoded metadata may need three times that.
	metadataBytes = "oncebox-metadata-bytes"
	// mostHeaders is how many bytes of headers a message has at most before its metadata moves into the data. The rest of JetStream's 64 KiB is for
	// the headers that the client and the server add.
	mostHeaders = 60 << 10
	// lineBytes is what a header takes beside its name and value.
	lineBytes = len(": \r\n")
	// serversOwn begins the headers of NATS itself, which say how a message came and not what it is.
	serversOwn = "Nats-"
)

// Encoder makes messages, one after the other. The zero value is ready.
type Encoder struct {
	props   []wire.Property
	values  []string
	header  natsclient.Header
	content []byte // what the id is made of
}

// Encode returns an envelope as a message for a subject of a stream. The next call overwrites the message.
func (e *Encoder) Encode(env *event.Envelope, stream, subject string) (*natsclient.Msg, error) {
	if env.SchemaVersion > math.MaxInt32 {
		return nil, messaging.Permanent(fmt.Errorf("nats: the message has schema version %d, the largest that a consumer can store is %d",
			env.SchemaVersion, math.MaxInt32))
	}
	e.props = format.Append(e.props[:0], env)
	data := e.moveMetadata(env.Payload)
	e.props = append(e.props, wire.Property{Name: jetstream.MsgIDHeader, Value: e.messageID(data)},
		wire.Property{Name: jetstream.ExpectedStreamHeader, Value: stream}) // another stream may have the subject, too
	if e.header == nil {
		e.header = make(natsclient.Header, len(e.props))
	}
	clear(e.header)
	e.values = e.values[:0]
	for _, p := range e.props {
		e.values = append(e.values, p.Value)
	}
	for n, p := range e.props {
		e.header[p.Name] = e.values[n : n+1 : n+1]
	}
	return &natsclient.Msg{Subject: subject, Header: e.header, Data: data}, nil
}

// messageID returns the id by which the server recognizes a copy: the same event with the same content. A dead letter that was replayed with another
// payload has the same event id, and must not be dropped as a copy.
func (e *Encoder) messageID(data []byte) string {
	e.content = e.content[:0]
	for _, p := range e.props {
		for _, text := range [...]string{p.Name, p.Value} {
			e.content = strconv.AppendInt(e.content, int64(len(text)), 10)
			e.content = append(e.content, ':')
			e.content = append(e.content, text...)
		}
	}
	e.content = append(e.content, data...)
	sum := sha256.Sum256(e.content)
	return hex.EncodeToString(sum[:16])
}

func headerBytes(p wire.Property) int { return len(p.Name) + len(p.Value) + lineBytes }

// moveMetadata takes the largest properties out until the rest fits into the headers, and returns the data with them at its beginning.
func (e *Encoder) moveMetadata(data []byte) []byte {
	total := 0
	for _, p := range e.props {
		total += headerBytes(p)
	}
	if total <= mostHeaders {
		return data
	}
	slices.SortStableFunc(e.props, func(a, b wire.Property) int { return cmp.Compare(headerBytes(b), headerBytes(a)) })
	moved := map[string]string{}
	n := 0
	for ; total > mostHeaders; n++ {
		moved[e.props[n].Name] = e.props[n].Value
		total -= headerBytes(e.props[n])
	}
	text, _ := json.Marshal(moved) //nolint:errchkjson // strings cannot fail
	e.props = append(slices.Delete(e.props, 0, n), wire.Property{Name: metadataBytes, Value: strconv.Itoa(len(text))})
	return append(text, data...)
}

// restoreMetadata is the reverse of moveMetadata. A message of another program that only looks like one of ours stays as it is.
func restoreMetadata(props map[string]string, data []byte) []byte {
	n, err := strconv.Atoi(props[metadataBytes])
	if err != nil || n < 0 || n > len(data) {
		return data
	}
	var moved map[string]string
	if json.Unmarshal(data[:n], &moved) != nil {
		return data
	}
	delete(props, metadataBytes)
	maps.Copy(props, moved)
	return data[n:]
}

// Decode returns a received message as an envelope.
func Decode(m *natsclient.Msg, md *natsclient.MsgMetadata, topic string) event.Envelope {
	props := make(map[string]string, len(m.Header))
	for name, values := range m.Header {
		if len(values) > 0 && !strings.HasPrefix(name, serversOwn) {
			props[name] = values[0]
		}
	}
	data := restoreMetadata(props, m.Data)
	return format.Envelope(&wire.Received{
		Topic: topic, Properties: props, Payload: data, Origin: m.Subject, Published: md.Timestamp,
		Place: func() string { return strconv.FormatUint(md.Sequence.Stream, 10) },
	})
}
