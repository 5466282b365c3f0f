package pulsar

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/linktest"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
)

// A receiver knows that it is cut off, why, and that it is connected again. The broker knows what waits meanwhile, for every reader.
func TestReceiverKnowsItsConnection(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	to := linktest.New(t, n.URL)
	cfg := config(n)
	cfg.URL, cfg.Partitions = to.URL, 2
	b := connect(t, cfg)
	r, err := b.Subscribe(patient(t), messaging.Subscription{Topic: "order", Name: "billing"})
	require.NoError(t, err)
	is := r.(messaging.ConnectedReceiver).Connection
	require.Equal(t, []int{2, 0}, []int{is().Parts, is().Away})
	waiting := func() messaging.SubscriptionState {
		t.Helper()
		s, err := b.ReadSubscription(patient(t), "order", "billing")
		require.NoError(t, err)
		return s
	}
	await.True(t, func() bool { return waiting().Consumers == 1 }, "the broker knows the consumer")

	to.SetDown(true)
	await.True(t, func() bool { return is().IsAway() }, "it is cut off")
	lost := is()
	require.Error(t, lost.Err)
	require.Equal(t, []int{2, 2}, []int{lost.Parts, lost.Away})
	require.NoError(t, connect(t, config(n)).Publish(patient(t), series("order", 6, 20)))
	await.True(t, func() bool {
		s := waiting()
		// The number of messages is an estimate: it depends on the batches that a busy machine makes of them.
		return s.Messages > 0 && s.Consumers == 0 && s.Unattended == 2 && !s.Missing
	}, "messages wait in both partitions, and nobody is there: %+v", waiting())
	require.Equal(t, lost.Since, is().Since)

	to.SetDown(false)
	await.True(t, func() bool { return is().Away == 0 }, "it is back")
	require.NoError(t, is().Err)
	require.True(t, is().Since.After(lost.Since))
	gone, err := b.ReadSubscription(patient(t), "order", "nobody")
	require.NoError(t, err)
	require.True(t, gone.Missing)
	gone, err = b.ReadSubscription(patient(t), "no-such-topic", "billing")
	require.NoError(t, err)
	require.True(t, gone.Missing)
}
