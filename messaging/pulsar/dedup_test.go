package pulsar

import (
	"context"
	"errors"
	"net/http"
	"testing"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
)

// A broker that deduplicates answers a lower sequence id than the last of a producer as a success, and drops the message.
// Events that commit late, and copies after a takeover, have lower sequences: nothing of them may be dropped.
func TestNamespaceThatDeduplicatesDropsNothing(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	require.NoError(t, n.Admin(t.Context(), http.MethodPost, "/namespaces/"+n.Name+"/deduplication", "true"))
	cfg := declared(n, "order", "s")
	cfg.Partitions, cfg.Producers = 1, 1
	first, second := connect(t, cfg), connect(t, cfg)
	const keys = 20
	sent := 0
	for key := keys; key > 0; key-- { // each key is committed later than those with higher sequences
		var msgs []event.Envelope
		for i := range 5 {
			m := envelope("order", string(rune('a'+key)), 10*key+i)
			msgs = append(msgs, m)
		}
		by := first
		if key%3 == 0 {
			by = second
		}
		require.NoError(t, by.Publish(patient(t), msgs))
		sent += len(msgs)
	}
	r, err := first.Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "s"})
	require.NoError(t, err)
	last := map[string]int64{}
	for _, m := range receiveAll(t, r, sent) {
		require.Greater(t, m.Sequence, last[m.RoutingKey])
		last[m.RoutingKey] = m.Sequence
	}
	require.Len(t, last, keys)
}

// mistaken is a producer whose messages bear a number that the broker has seen.
type mistaken struct{ pulsarclient.Producer }

func (p mistaken) SendAsync(ctx context.Context, m *pulsarclient.ProducerMessage, done callback) {
	m.SequenceID = new(int64)
	p.Producer.SendAsync(ctx, m, done)
}

// A message that the broker throws away as a duplicate is not reported as sent, although the client says so.
func TestReceiptOfADuplicateIsNone(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	require.NoError(t, n.Admin(t.Context(), http.MethodPost, "/namespaces/"+n.Name+"/deduplication", "true"))
	cfg := declared(n, "order", "s")
	cfg.Partitions = 1
	b := connect(t, cfg)
	msgs := series("order", 2, 5)
	half := len(msgs) / 2
	require.NoError(t, b.Publish(patient(t), msgs[:half]))

	top, err := b.topic("order")
	require.NoError(t, err)
	p, err := top.checkOut(t.Context())
	require.NoError(t, err)
	f := newFlight(&producer{Producer: mistaken{p.Producer}, batched: p.batched}, top, b.cfg.MaxMessageBytes, msgs)
	failed, sound := f.run(patient(t), []int{5, 6, 7, 8, 9})
	require.False(t, sound)
	top.retire(p)
	require.Len(t, failed, half)
	for i, err := range failed {
		if i > half && errors.Is(err, messaging.ErrBehind) {
			continue // the answer to an earlier one came before this one was handed over
		}
		require.ErrorIs(t, err, messaging.ErrUnknown)
	}
	require.ErrorIs(t, failed[half], errNotStored)

	require.NoError(t, b.Publish(patient(t), msgs[half:]), "by another producer")
	r, err := b.Subscribe(t.Context(), cfg.Subscriptions[0])
	require.NoError(t, err)
	last := map[string]int64{}
	for _, m := range receiveAll(t, r, len(msgs)) {
		require.Equal(t, last[m.RoutingKey]+1, m.Sequence)
		last[m.RoutingKey] = m.Sequence
	}
}
