package pulsar

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	pulsarwire "github.com/oncebox/oncebox/messaging/pulsar/internal/wire"
	"github.com/oncebox/oncebox/messaging/wire"
)

// A message that is small on the wire can be large here: 16 MiB of zeros take 66 kB.
func TestDecompressionBombIsADeadLetterOfItsBeginning(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	cfg := config(n)
	cfg.Topics, cfg.Partitions, cfg.MaxReceivedBytes = []string{"order"}, 1, 6<<20
	e := newEffects(t, cfg, n)
	_, stop := e.consume(e.broker, messaging.Subscription{Topic: "order", Name: "s"})
	theirs := stranger(t, cfg, pulsarclient.ProducerOptions{Topic: "order", DisableBatching: true, CompressionType: pulsarclient.LZ4})
	bomb := envelope("order", "bomb", 1)
	bomb.Payload = make([]byte, 16<<20)
	sendAll(t, theirs, pulsarwire.Encode(&bomb))
	require.NoError(t, e.broker.Publish(t.Context(), series("order", 10, 10)))
	e.settled("order", "s")
	stop()
	e.requireOnceInOrder(10, 10)
	d := e.letters()[0]
	require.Equal(t, bomb.ID, d.Envelope.ID)
	require.Equal(t, make([]byte, wire.KeptPayload), d.Envelope.Payload)
	require.Contains(t, d.Error, "more than the 6291456 of pulsar.Config.MaxReceivedBytes")
}

// receivedBy is the message as a receiver with a limit hands it out.
func receivedBy(t *testing.T, limit int, m *wireMessage) *messaging.Message {
	t.Helper()
	r, c := fakeReceiver(messaging.Shared)
	r.broker.cfg.MaxReceivedBytes = limit
	c.messages <- pulsarclient.ConsumerMessage{Message: &redelivered{*m}}
	got, err := r.Receive(patient(t))
	require.NoError(t, err)
	return got
}

func TestLimitOfReceivedBytes(t *testing.T) {
	foreign := func() *wireMessage {
		return &wireMessage{payload: bytes.Repeat([]byte("x"), 900), key: "k", properties: map[string]string{"ce_id": "1", "color": "red"}}
	}
	size := 900 + len("k") + len("ce_id1colorred")
	require.NoError(t, messaging.Unreadable(receivedBy(t, size, foreign())))
	require.NoError(t, messaging.Unreadable(receivedBy(t, -1, foreign())))
	got := receivedBy(t, size-1, foreign())
	require.ErrorIs(t, messaging.Unreadable(got), messaging.ErrUnreadable)
	require.Equal(t, "1", got.ID)
	require.Equal(t, "k", got.RoutingKey)
	require.Equal(t, "red", got.Metadata["color"])
	require.Len(t, got.Payload, 900, "there is room for it")

	flood := foreign()
	flood.payload, flood.key = bytes.Repeat([]byte("x"), 1<<20), strings.Repeat("k", 1<<20)
	for n := range 1000 {
		flood.properties[strings.Repeat("p", n+1)] = strings.Repeat("v", 1000)
	}
	flood.properties["large"] = strings.Repeat("v", 1<<20)
	got = receivedBy(t, 1<<20, flood)
	require.Equal(t, "1", got.ID, "what identifies it comes first")
	require.Len(t, got.Payload, wire.KeptPayload)
	require.Empty(t, got.RoutingKey)
	require.LessOrEqual(t, len(strings.Join(slices.Collect(maps.Values(got.Metadata)), "")), wire.KeptProperties+1000)

	endless := foreign()
	endless.properties["ce_id"] = strings.Repeat("1", 1<<20)
	got = receivedBy(t, 1<<20, endless)
	require.Equal(t, "order@12:34:1:5", got.ID, "an id that was cut could be another's")
	require.WithinDuration(t, endless.PublishTime(), got.OccurredAt, time.Second)
}
