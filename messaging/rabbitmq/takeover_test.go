package rabbitmq

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/linktest"
	"github.com/oncebox/oncebox/messaging"
)

// The active consumer settles some of its messages, not in their order, and loses its network. The next one gets all others of each key in order.
func TestOrderAtATakeover(t *testing.T) {
	t.Parallel()
	s := billing("takeover")
	l := linktest.New(t, server(t).URL)
	first, second := connect(t, config(l.URL)), connect(t, config(server(t).URL))
	active := subscribe(t, first, s)
	standby := subscribe(t, second, s)
	const keys, perKey = 20, 10
	var msgs []event.Envelope
	for n := range perKey {
		for k := range keys {
			msgs = append(msgs, envelope("takeover", fmt.Sprintf("key-%d", k), n))
		}
	}
	require.NoError(t, second.Publish(patient(t), msgs))
	settled := map[string]bool{}
	for n := range msgs {
		m := receive(t, active)
		if n%3 == 0 {
			require.NoError(t, active.Ack(patient(t), m))
			settled[m.ID] = true
		}
	}
	l.SetDown(true)
	requireRest(t, standby, len(msgs)-len(settled), settled)
	l.SetDown(false)
}

// requireRest receives n messages of each key in order, none of which was settled.
func requireRest(t *testing.T, r messaging.Receiver, n int, settled map[string]bool) {
	t.Helper()
	last := map[string]int64{}
	seen := map[string]bool{}
	for len(seen) < n {
		m := receive(t, r)
		require.NoError(t, r.Ack(patient(t), m))
		if seen[m.ID] || settled[m.ID] { // an acknowledgement may be lost with the connection
			continue
		}
		seen[m.ID] = true
		before, ok := last[m.RoutingKey]
		require.True(t, !ok || before < m.Sequence, "key %s: %d after %d", m.RoutingKey, m.Sequence, before)
		last[m.RoutingKey] = m.Sequence
	}
}
