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

// Encode returns an envelope as a message for a subject of a stream.
func Encode(env *event.Envelope, stream, subject string) (*natsclient.Msg, error) {
	if env.SchemaVersion > math.MaxInt32 {
		return nil, messaging.Permanent(fmt.Errorf("nats: the message has schema version %d, the largest that a consumer can store is %d",
			env.SchemaVersion, math.MaxInt32))
	}
	props, data := format.Properties(nil, env), env.Payload
	if wire.Size(props)+len(props)*lineBytes > mostHeaders {
		data = moveMetadata(props, data)
	}
	header := make(natsclient.Header, len(props)+2)
	for name, value := range props {
		header[name] = []string{value}
	}
	header[jetstream.MsgIDHeader] = []string{messageID(props, data)}
	header[jetstream.ExpectedStreamHeader] = []string{stream} // another stream may have the subject, too
	return &natsclient.Msg{Subject: subject, Header: header, Data: data}, nil
}

// messageID returns the id by which the server recognizes a copy: the same event with the same content. A dead letter that was replayed with another
// payload has the same event id, and must not be dropped as a copy.
func messageID(props map[string]string, data []byte) string {
	h := sha256.New()
	var length [8]byte
	write := func(text string) {
		h.Write(strconv.AppendInt(length[:0], int64(len(text)), 10))
		h.Write([]byte(":" + text))
	}
	for _, name := range slices.Sorted(maps.Keys(props)) {
		write(name)
		write(props[name])
	}
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// moveMetadata takes the largest properties out of props until the rest fits into the headers, and returns the data with them at its beginning.
func moveMetadata(props map[string]string, data []byte) []byte {
	size := func(name string) int { return len(name) + len(props[name]) + lineBytes }
	total := 0
	for name := range props {
		total += size(name)
	}
	moved := map[string]string{}
	for _, name := range slices.SortedFunc(maps.Keys(props), func(a, b string) int {
		return cmp.Or(cmp.Compare(size(b), size(a)), cmp.Compare(a, b))
	}) {
		if total <= mostHeaders {
			break
		}
		total -= size(name)
		moved[name] = props[name]
		delete(props, name)
	}
	text, _ := json.Marshal(moved) //nolint:errchkjson // strings cannot fail
	props[metadataBytes] = strconv.Itoa(len(text))
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
