package wire_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/fuzzed"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/wire"
)

// Any properties become an envelope that a consumer can live with, the same one each time, and what is ours comes back as it was.
func FuzzProperties(f *testing.F) {
	f.Add(fuzzed.Bytes("ce-id", "1", "ce-schemaversion", "2147483648", "ce-time", "0000-01-01T00:00:00+23:59"), "k", []byte("x"), false)
	f.Add(fuzzed.Bytes("ce-id", "%ff", "meta-", "a", "", "b", "meta-%20", "%"), "\x00", []byte(nil), false)
	f.Add(fuzzed.Bytes("cloudEvents_id", "1", "cloudEvents_metadata", `{"a":"b"}`, "meta-a", "c"), "", []byte("null"), true)
	f.Add(fuzzed.Bytes("cloudEvents_metadata", `{"a":1}`, "ce_sequence", "-1", "traceparent", "00-"), "", []byte{}, false)
	f.Fuzz(func(t *testing.T, properties []byte, key string, payload []byte, unreadable bool) {
		for name, binding := range bindings() {
			r := &wire.Received{
				Topic: "order", Key: key, Properties: fuzzed.Properties(properties), Payload: payload,
				Place: func() string { return "12" }, Origin: "o", Published: time.UnixMilli(1_700_000_000_123),
			}
			if unreadable {
				r.Unreadable = "it is torn"
			}
			format := wire.NewFormat(binding)
			env := format.Envelope(r)
			require.Equal(t, env, format.Envelope(r), "%s: a message that comes again is the same one", name)
			requireLivable(t, r, env)
			if unreadable || binding.MaxName > 0 && !isUnicode(env.Metadata) {
				continue
			}
			sent := env
			sent.Payload = append([]byte{}, env.Payload...)
			again := format.Envelope(received(&sent, binding))
			again.Payload = append([]byte{}, again.Payload...)
			require.Equal(t, sent, again, name)
		}
	})
}

// isUnicode reports whether JSON can carry the metadata.
func isUnicode(md event.Metadata) bool {
	for k, v := range md {
		if strings.ToValidUTF8(k, "") != k || strings.ToValidUTF8(v, "") != v {
			return false
		}
	}
	return true
}

func requireLivable(t *testing.T, r *wire.Received, env event.Envelope) {
	t.Helper()
	require.NotEmpty(t, env.ID)
	require.Equal(t, "order", env.Topic)
	require.True(t, env.SchemaVersion >= 0 && env.SchemaVersion <= math.MaxInt32, "%d", env.SchemaVersion)
	require.True(t, env.Sequence >= 0 && env.AggregateVersion >= 0)
	require.Equal(t, event.Delivery{OrderingKey: env.Delivery.OrderingKey}, env.Delivery)
	require.NotNil(t, env.Metadata)
	_, err := json.Marshal(env.Metadata)
	require.NoError(t, err)
	if r.Unreadable == "" {
		require.Len(t, env.Payload, len(r.Payload))
		return
	}
	require.ErrorIs(t, messaging.Unreadable(messaging.NewMessage(env, 1, nil)), messaging.ErrUnreadable)
	size := len(env.Payload) + len(env.RoutingKey)
	for k, v := range env.Metadata {
		size += len(k) + len(v)
	}
	require.LessOrEqual(t, size, wire.KeptPayload+wire.KeptProperties+12<<10)
}
