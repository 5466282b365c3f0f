package pulsar

import (
	"errors"
	"net/http"
	"testing"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
)

// The broker deletes a message that all subscriptions have settled. It still knows that there was one, also after it has loaded the topic anew, as after
// a restart, and with no publisher connected.
func TestATopicWhoseMessagesAreGoneWasInUse(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	s := messaging.Subscription{Topic: "order", Name: "billing", Source: "shop"}
	reader := connect(t, config(n))
	require.NoError(t, reader.Declare(t.Context(), nil, []messaging.Subscription{s}))
	unused := func() bool {
		is, err := reader.Unused(t.Context(), "order")
		require.NoError(t, err)
		return is
	}
	require.True(t, unused())
	is, err := reader.Unused(t.Context(), "none")
	require.NoError(t, err)
	require.True(t, is)
	require.NoError(t, n.Admin(t.Context(), http.MethodPut, "/persistent/"+n.Name+"/plain", ""))
	is, err = reader.Unused(t.Context(), "plain")
	require.NoError(t, err)
	require.True(t, is, "a topic without partitions")

	writer := connect(t, config(n))
	require.NoError(t, writer.Publish(t.Context(), []event.Envelope{{ID: "1", Topic: "order", RoutingKey: "a", Payload: []byte("{}")}}))
	require.False(t, unused())
	require.NoError(t, writer.Close())
	require.False(t, unused(), "the message waits")
	r, err := reader.Subscribe(t.Context(), s)
	require.NoError(t, err)
	m, err := r.Receive(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.Ack(t.Context(), m))
	require.NoError(t, r.Close())
	await.True(t, func() bool {
		state, err := reader.ReadSubscription(t.Context(), "order", "billing")
		return err == nil && state.Messages == 0
	}, "the message is settled")
	for range 2 { // the first time the message is still there
		require.NoError(t, n.Admin(t.Context(), http.MethodPut, "/persistent/"+n.Name+"/order/unload", ""))
		require.False(t, unused())
	}

	_, err = reader.Unused(t.Context(), "")
	require.Error(t, err)
	cfg := config(n)
	cfg.AdminURL, cfg.AdminTimeout = "http://127.0.0.1:1", time.Second
	_, err = connect(t, cfg).Unused(t.Context(), "order")
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// A publisher that is connected will publish.
func TestAConnectedPublisherIsUse(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	b := connect(t, config(n))
	require.NoError(t, b.Declare(t.Context(), []string{"order"}, nil))
	p, err := b.client.CreateProducer(pulsarclient.ProducerOptions{Topic: "persistent://" + n.Name + "/order"})
	require.NoError(t, err)
	defer p.Close()
	is, err := b.Unused(t.Context(), "order")
	require.NoError(t, err)
	require.False(t, is)
}
