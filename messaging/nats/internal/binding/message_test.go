package binding

import (
	"strings"
	"testing"
	"time"

	natsclient "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/messaging"
)

func place() *natsclient.MsgMetadata {
	md := &natsclient.MsgMetadata{Timestamp: time.Unix(7, 0)}
	md.Sequence.Stream = 12
	return md
}

// Whatever the metadata is, it arrives, and the headers stay below the limit of the server.
func TestMetadataThatDoesNotFitIntoTheHeaders(t *testing.T) {
	nightly.Check(t, 50, 2000, func(t *rapid.T) {
		env := event.Envelope{ID: "1", Topic: "order", OccurredAt: time.Unix(1, 0).UTC(), Payload: []byte("data"), Metadata: event.Metadata{}}
		for range rapid.IntRange(0, 5).Draw(t, "entries") {
			key := rapid.SampledFrom([]string{"a", "ce-extension", "é", "traceparent", "meta-x"}).Draw(t, "key")
			key += rapid.StringMatching(`[a-c]{0,3}`).Draw(t, "more")
			env.Metadata[key] = strings.Repeat(rapid.SampledFrom([]string{"x", " ", "é"}).Draw(t, "text"), rapid.IntRange(0, 30_000).Draw(t, "length"))
		}
		m, err := new(Encoder).Encode(&env, "s", "s.0")
		require.NoError(t, err)
		size := 0
		for name, values := range m.Header {
			size += len(name) + len(values[0]) + lineBytes
		}
		require.Less(t, size, 62<<10)
		got := Decode(m, place(), "order")
		require.Equal(t, env, got)
	})
}

// Messages of other programs that look like one of ours are received as they are.
func TestForeignMessages(t *testing.T) {
	for _, header := range []string{"", "-1", "4", "5", "abc"} {
		m := &natsclient.Msg{Subject: "s.0", Data: []byte("[{}]"), Header: natsclient.Header{metadataBytes: {header}, "Nats-Msg-Id": {"x"}, "none": nil}}
		env := Decode(m, place(), "order")
		require.Equal(t, "[{}]", string(env.Payload))
		require.Equal(t, header, env.Metadata[metadataBytes])
		require.NotContains(t, env.Metadata, "Nats-Msg-Id", "it says how the message came")
		require.Equal(t, "order@12", env.ID)
		require.Equal(t, time.Unix(7, 0).UTC(), env.OccurredAt)
	}
}

func TestSchemaVersionThatNoColumnTakes(t *testing.T) {
	_, err := new(Encoder).Encode(&event.Envelope{ID: "1", SchemaVersion: 1 << 31}, "s", "s.0")
	require.True(t, messaging.IsPermanent(err), "%v", err)
}

// The id that the server compares differs if anything of the event does, and is the same for the same event.
func TestMessageID(t *testing.T) {
	base := event.Envelope{ID: "1", Topic: "order", Payload: []byte("p"), Metadata: event.Metadata{"a": "b", "c": "d"}}
	idOf := func(change func(*event.Envelope)) string {
		env := base
		env.Metadata = base.Metadata.Clone()
		change(&env)
		m, err := new(Encoder).Encode(&env, "s", "s.0")
		require.NoError(t, err)
		return m.Header.Get("Nats-Msg-Id")
	}
	same := idOf(func(*event.Envelope) {})
	require.Equal(t, same, idOf(func(*event.Envelope) {}))
	seen := map[string]bool{same: true}
	for _, change := range []func(*event.Envelope){
		func(e *event.Envelope) { e.ID = "2" },
		func(e *event.Envelope) { e.Source = "s" },
		func(e *event.Envelope) { e.Payload = []byte("q") },
		func(e *event.Envelope) { e.Metadata["a"] = "bc" },
		func(e *event.Envelope) { delete(e.Metadata, "a") },
		func(e *event.Envelope) { e.RoutingKey = "k" },
	} {
		id := idOf(change)
		require.False(t, seen[id])
		seen[id] = true
	}
}
