package wire

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/fuzzed"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/wire"
)

// Any message becomes an envelope that a consumer can live with, the same one each time, and what is ours comes back as it was.
func FuzzReceivedMessage(f *testing.F) {
	f.Add(fuzzed.Bytes("ce_id", "1", "ce_schemaversion", "2147483648", "ce_time", "0000-01-01T00:00:00+23:59"), "k", []byte("x"), int64(0), 0, 16)
	f.Add(fuzzed.Bytes("ce_id", "\xff", "meta-", "a", "", "b", "oncebox-early", "true"), "\x00", []byte(nil), int64(math.MaxInt64), 2, 0)
	f.Add(fuzzed.Bytes("ce_specversion", "1.0", "ce_sequence", "-1", "traceparent", "00-", "meta-traceparent", "x"), "", []byte("null"), int64(-1), 1, 3)
	f.Add([]byte{}, "", []byte{}, int64(1), 1, 0)
	f.Fuzz(func(t *testing.T, properties []byte, key string, payload []byte, at int64, sealed, limit int) {
		m := &wireMessage{payload: payload, key: key, properties: fuzzed.Properties(properties), eventTime: time.UnixMilli(at)}
		if sealed > 0 {
			m.sealed = &pulsarclient.EncryptionContext{BatchSize: sealed}
		}
		l := Limits{MaxReceived: limit}
		env := l.Envelope(m, "order")
		require.Equal(t, env, l.Envelope(m, "order"), "a message that comes again is the same one")
		requireLivable(t, l, m, env)
		if sealed > 0 || limit > 0 {
			return
		}
		sent := env
		sent.Payload = append([]byte{}, env.Payload...)
		again := decode(carry(Encode(&sent)), env.Topic)
		again.Payload = append([]byte{}, again.Payload...)
		require.Equal(t, sent, again)
	})
}

func requireLivable(t *testing.T, l Limits, m *wireMessage, env event.Envelope) {
	t.Helper()
	require.NotEmpty(t, env.ID)
	require.Equal(t, "order", env.Topic)
	require.False(t, env.OccurredAt.IsZero() && m.properties["ce_id"] == "")
	require.True(t, env.SchemaVersion >= 0 && env.SchemaVersion <= math.MaxInt32, "%d", env.SchemaVersion)
	require.True(t, env.Sequence >= 0 && env.AggregateVersion >= 0)
	require.Equal(t, event.Delivery{}, env.Delivery)
	require.NotNil(t, env.Metadata)
	_, err := json.Marshal(env.Metadata)
	require.NoError(t, err)
	unreadable := messaging.Unreadable(messaging.NewMessage(env, 1, nil))
	if l.unreadable(m, &wire.Received{Key: m.key, Properties: m.properties, Payload: m.payload}) == "" {
		require.Len(t, env.Payload, len(m.payload))
		return
	}
	require.ErrorIs(t, unreadable, messaging.ErrUnreadable)
	size := len(env.Payload) + len(env.RoutingKey)
	for k, v := range env.Metadata {
		size += len(k) + len(v)
	}
	require.LessOrEqual(t, size, wire.KeptPayload+wire.KeptProperties+12<<10)
	if m.sealed != nil && m.sealed.BatchSize > 1 {
		require.Equal(t, "order@"+m.ID().String(), env.ID, "what describes the first message of a batch does not describe it")
		require.Empty(t, messaging.NewMessage(env, 1, nil).OrderingKey())
	}
}
