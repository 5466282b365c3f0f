package pulsar

import (
	"context"
	"errors"
	"maps"
	"testing"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
)

// seenProducer records its messages, and confirms them at once.
type seenProducer struct {
	pulsarclient.Producer

	seen []map[string]string
	err  error
}

func (p *seenProducer) SendAsync(_ context.Context, m *pulsarclient.ProducerMessage, done callback) {
	p.seen = append(p.seen, maps.Clone(m.Properties))
	done(pulsarclient.NewMessageID(1, 1, 0, 0), m, p.err)
}

func (p *seenProducer) FlushWithCtx(context.Context) error { return nil }

// A message that was sent carries the next event, and nothing of the one before. One without a receipt is the client's.
func TestMessagesAreUsedAgain(t *testing.T) {
	client := &seenProducer{}
	p := &producer{Producer: client, batched: true}
	publish := func(envs ...event.Envelope) {
		t.Helper()
		indexes := make([]int, len(envs))
		for i := range indexes {
			indexes[i] = i
		}
		newFlight(p, &topic{}, 1<<20, envs).run(t.Context(), indexes)
	}
	publish(event.Envelope{ID: "1", Type: "placed", Metadata: event.Metadata{"region": "eu"}}, event.Envelope{ID: "2", Type: "placed"})
	require.Len(t, p.spare, 2)
	require.Empty(t, p.spare[0].Properties, "what was sent is let go")
	client.seen = nil
	publish(event.Envelope{ID: "3"}, event.Envelope{ID: "4"}, event.Envelope{ID: "5"})
	for i, id := range []string{"3", "4", "5"} {
		require.Equal(t, map[string]string{"ce_specversion": "1.0", "ce_id": id}, client.seen[i])
	}
	require.Len(t, p.spare, 3)

	client.err = errors.New("not stored")
	publish(event.Envelope{ID: "6"})
	require.Len(t, p.spare, 2, "the client may still have it")

	client.err = nil
	publish(make([]event.Envelope, maxSpare+10)...)
	require.Len(t, p.spare, maxSpare)
}
