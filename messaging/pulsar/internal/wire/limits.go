package wire

import (
	"fmt"
	"strings"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging/wire"
)

// Limits say which messages are taken as they are, in bytes.
type Limits struct {
	MaxReceived int // of a message with its properties; -1: no limit
	MaxMessage  int // what the broker takes: a message that came in chunks is larger
}

// Envelope returns the envelope of a message that was received from a topic. For an unreadable message it has only parts, and the reason:
// see [messaging.UnreadableKey].
//
// [messaging.UnreadableKey]: https://pkg.go.dev/github.com/oncebox/oncebox/messaging#UnreadableKey
func (l Limits) Envelope(m pulsarclient.Message, topic string) event.Envelope {
	r := wire.Received{
		Topic: topic, Key: m.Key(), Properties: m.Properties(), Payload: m.Payload(),
		Place: func() string { return m.ID().String() }, Origin: m.Topic(), Published: m.PublishTime(),
	}
	if m.EventTime().UnixMilli() > 0 { // no time is 1970, not zero
		r.Time = m.EventTime()
	}
	r.Unreadable = l.unreadable(m, &r)
	// The properties and the key of an encrypted batch belong to its first message and say nothing about the others, so such a message is
	// identified by its place in the topic.
	if sealed := m.GetEncryptionContext(); sealed != nil && sealed.BatchSize > 1 {
		r.Key, r.Properties = "", nil
	}
	return format.Envelope(&r)
}

// unreadable returns the reason why a message is not what was sent, "" if it is complete.
func (l Limits) unreadable(m pulsarclient.Message, r *wire.Received) string {
	if sealed := m.GetEncryptionContext(); sealed != nil {
		if n := sealed.BatchSize; n > 1 {
			return fmt.Sprintf("it is a batch of %d messages that were encrypted by Pulsar's client, and this consumer has no key for them", n)
		}
		return "its payload was encrypted by Pulsar's client, and this consumer has no key for it"
	}
	if reason := wire.Oversize(r.Size(), l.MaxReceived, "pulsar.Config.MaxReceivedBytes (ONCEBOX_PULSAR_MAX_RECEIVED_BYTES)"); reason != "" {
		return reason
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
