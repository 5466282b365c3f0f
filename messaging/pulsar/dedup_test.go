package pulsar

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
)

// A broker that deduplicates answers a lower sequence id than the last of a producer as a success, and drops the message.
// Events that commit late, and copies after a takeover, have lower sequences: nothing of them may be dropped.
func TestNamespaceThatDeduplicatesDropsNothing(t *testing.T) {
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
