package pulsar

import (
	"bytes"
	"testing"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/wire"
)

// The client hands out the last chunk as the whole if the sender did not say how large the whole is.
func TestChunkedMessageIsWholeOrADeadLetter(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	cfg := config(n)
	cfg.Topics, cfg.Partitions = []string{"order"}, 1
	e := newEffects(t, cfg, n)
	_, stop := e.consume(e.broker, messaging.Subscription{Topic: "order", Name: "s"})

	whole := envelope("order", "whole", 1)
	whole.Payload = bytes.Repeat([]byte("x"), 6<<20)
	theirs := stranger(t, cfg, pulsarclient.ProducerOptions{Topic: "order", DisableBatching: true, EnableChunking: true})
	sendAll(t, theirs, wire.Encode(&whole))
	torn := envelope("order", "torn", 1)
	newBareProducer(t, cfg, "order-partition-0").chunks(wire.Encode(&torn).Properties, "pay 1", "00 to ", "B")
	require.NoError(t, e.broker.Publish(t.Context(), series("order", 10, 10)))
	e.settled("order", "s")
	stop()
	require.Equal(t, 101, e.count(), "the whole one and the others")
	require.Equal(t, []string{torn.ID}, e.dead())
	require.Contains(t, e.letters()[0].Error, "chunks")
	require.Equal(t, "B", string(e.letters()[0].Envelope.Payload))
}
