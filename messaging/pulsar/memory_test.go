package pulsar

import (
	"errors"
	"sync/atomic"
	"testing"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/wire"
)

// The client loses messages of producers that are closed in trouble. If it counted memory, these would count for ever, and
// once its default of 64 MiB is lost no topic would ever get a message again.
func TestMessagesThatTheClientLostTakeNoRoom(t *testing.T) {
	t.Parallel()
	b := connect(t, declared(pulsartest.Open(t), "order", "s"))
	top, err := b.topic("order")
	require.NoError(t, err)
	large := envelope("order", "a", 1)
	large.Payload = make([]byte, 64<<10)
	const atOnce = 200
	for lost := 0; lost <= 64<<20; {
		p, err := top.checkOut(t.Context())
		require.NoError(t, err)
		var answered atomic.Int32
		var full atomic.Bool
		for range atOnce {
			p.SendAsync(t.Context(), wire.Encode(&large), func(_ pulsarclient.MessageID, _ *pulsarclient.ProducerMessage, err error) {
				answered.Add(1)
				if errors.Is(err, pulsarclient.ErrMemoryBufferIsFull) {
					full.Store(true)
				}
			})
		}
		p.Close()
		<-top.room
		require.False(t, full.Load(), "after %d bytes were lost", lost)
		lost += (atOnce - int(answered.Load())) * len(large.Payload)
	}
	require.NoError(t, b.Publish(t.Context(), []event.Envelope{large}))
}
