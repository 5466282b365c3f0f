package rabbitmq

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
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

// One process of a subscription has all queues. The other gets nothing while the first is there, and all that is left when it has gone.
func TestOthersStandBy(t *testing.T) {
	t.Parallel()
	s := billing("standby")
	active := subscribe(t, connect(t, config(server(t).URL)), s)
	standby := subscribe(t, connect(t, config(server(t).URL)), s)
	const n = 200
	var msgs []event.Envelope
	for k := range n {
		msgs = append(msgs, envelope("standby", fmt.Sprintf("key-%d", k), 1))
	}
	b := connect(t, config(server(t).URL))
	require.NoError(t, b.Publish(patient(t), msgs))
	early := make(chan *messaging.Message, 1)
	ctx, moved := context.WithCancel(patient(t))
	defer moved()
	go func() {
		m, _ := standby.Receive(patient(t)) // nil if it fails
		early <- m
		moved()
	}()
	seen := map[string]bool{}
	for len(seen) < n {
		m, err := active.Receive(ctx)
		require.NoError(t, err, "both are active")
		require.NoError(t, active.Ack(ctx, m))
		seen[m.ID] = true
	}
	require.Empty(t, early, "both were active")
	require.NoError(t, active.Close())
	require.NoError(t, b.Publish(patient(t), []event.Envelope{envelope("standby", "key-1", 2)}))
	m := await.Receive(t, early, "the message at the other process")
	require.NotNil(t, m)
	require.EqualValues(t, 2, m.Sequence)
	require.NoError(t, standby.Ack(patient(t), m))
}

// The broker keeps messages only for the queues that exist: a later subscription begins at the next message.
func TestLaterSubscriptionBeginsAtTheNextMessage(t *testing.T) {
	t.Parallel()
	b := declared(t, billing("later"))
	require.NoError(t, b.Publish(patient(t), []event.Envelope{envelope("later", "a", 1)}))
	later := subscribe(t, b, messaging.Subscription{Topic: "later", Name: "audit"})
	require.NoError(t, b.Publish(patient(t), []event.Envelope{envelope("later", "a", 2)}))
	first := subscribe(t, b, billing("later"))
	for r, want := range map[messaging.Receiver][]int64{later: {2}, first: {1, 2}} {
		for _, n := range want {
			m := receive(t, r)
			require.Equal(t, n, m.Sequence)
			require.NoError(t, r.Ack(patient(t), m))
		}
	}
}
