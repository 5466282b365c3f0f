package pulsar

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/topics"
)

// fakeConsumer hands out given messages.
type fakeConsumer struct {
	pulsarclient.Consumer

	messages chan pulsarclient.ConsumerMessage
	asked    []int32
}

func (c *fakeConsumer) Chan() <-chan pulsarclient.ConsumerMessage { return c.messages }
func (*fakeConsumer) Ack(pulsarclient.Message) error              { return nil }
func (*fakeConsumer) Close()                                      {}
func (c *fakeConsumer) NackID(id pulsarclient.MessageID) {
	c.asked = append(c.asked, id.PartitionIdx())
}

type fakeClient struct{ pulsarclient.Client }

func (fakeClient) TopicPartitions(string) ([]string, error) { return []string{"0", "1", "2"}, nil }

func fakeReceiver(kind messaging.SubscriptionType) (*receiver, *fakeConsumer) {
	b := &Broker{client: fakeClient{}, keeper: topics.NewKeeper(topics.Config{}, nil, topics.Connection{}), receivers: map[*receiver]bool{}}
	r := newReceiver(b, messaging.Subscription{Topic: "order", Name: "s", Type: kind})
	c := &fakeConsumer{messages: make(chan pulsarclient.ConsumerMessage, 10)}
	r.consumer = c
	return r, c
}

// incoming is a message of partition 1.
func incoming(id string) pulsarclient.ConsumerMessage {
	return pulsarclient.ConsumerMessage{Message: &redelivered{wireMessage{properties: map[string]string{"ce_id": id}}}}
}

type redelivered struct{ wireMessage }

// The mark of early messages is known to readers of the source.
func TestForeignMarkHoldsNoMessageOff(t *testing.T) {
	for _, kind := range []messaging.SubscriptionType{messaging.Failover, messaging.KeyShared, messaging.Shared} {
		t.Run(kind.String(), func(t *testing.T) {
			r, c := fakeReceiver(kind)
			m := incoming("a")
			m.Properties()[propEarly] = "true"
			c.messages <- m
			got, err := r.Receive(patient(t))
			require.NoError(t, err)
			require.Equal(t, "a", got.ID)
		})
	}
}

func (*redelivered) RedeliveryCount() uint32 { return 2 }

// hear receives for a while and returns the last message.
func hear(t *testing.T, r *receiver, d time.Duration) *messaging.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var last *messaging.Message
	for {
		m, err := r.Receive(ctx)
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			synctest.Wait()
			return last
		}
		last = m
	}
}

// A broker may forget to deliver messages that another consumer left behind. A receiver that gets nothing asks for them.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := fakeReceiver(messaging.Failover)
		hear(t, r, firstSilence-time.Millisecond)
		require.Empty(t, c.asked)
		hear(t, r, 2*time.Millisecond)
		require.Equal(t, []int32{0, 1, 2}, c.asked)
		hear(t, r, firstSilence+time.Second)
		require.Len(t, c.asked, 3, "less and less often")
		hear(t, r, firstSilence)
		require.Len(t, c.asked, 6)

		// A message in hand would come twice.
		c.asked = nil
		c.messages <- incoming("1")
		m := hear(t, r, firstSilence+time.Millisecond)
		require.Equal(t, []int32{0, 2}, c.asked)
		require.NoError(t, r.Ack(t.Context(), m))
		require.NoError(t, r.Ack(t.Context(), m))
		c.asked = nil
		hear(t, r, 2*longestSilence)
		require.Equal(t, []int32{0, 1, 2}, c.asked[:3])

		// Messages that were left at the broker would come again, which must not happen all the time.
		c.messages <- incoming("2")
		r.Leave(hear(t, r, time.Millisecond))
		c.asked = nil
		hear(t, r, 2*firstSilence)
		require.Equal(t, []int32{0, 2}, c.asked)
		hear(t, r, 2*longestSilence)
		require.Contains(t, c.asked, int32(1))

		require.NoError(t, r.Close())
		c.asked = nil
		r.ask(false)
		synctest.Wait()
		require.Empty(t, c.asked)
	})
}

func TestSilenceIsAllRightWithoutPartitionsToMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range []messaging.SubscriptionType{messaging.KeyShared, messaging.Shared} {
			r, c := fakeReceiver(kind)
			hear(t, r, time.Hour)
			require.Empty(t, c.asked)
		}
	})
}

func TestRedeliverInOrder(t *testing.T) {
	r, c := fakeReceiver(messaging.Failover)
	ctx := t.Context()
	for _, id := range []string{"1", "2", "3", "4"} {
		c.messages <- incoming(id)
	}
	var msgs []*messaging.Message
	for range 3 {
		m, err := r.Receive(ctx)
		require.NoError(t, err)
		require.Equal(t, 3, m.Attempt, "the broker knows of two")
		msgs = append(msgs, m)
	}
	for _, i := range []int{2, 0, 1} {
		require.NoError(t, r.Redeliver(ctx, msgs[i]))
	}
	for i, id := range []string{"1", "2", "3", "4"} {
		m, err := r.Receive(ctx)
		require.NoError(t, err)
		require.Equal(t, id, m.ID)
		if i < 3 {
			require.Equal(t, 4, m.Attempt)
		}
	}
	other, _ := fakeReceiver(messaging.Failover)
	require.ErrorContains(t, other.Ack(ctx, msgs[0]), "through another receiver")
	require.ErrorContains(t, other.Redeliver(ctx, messaging.NewMessage(msgs[0].Envelope, 1, nil)), "through another receiver")
}

// The client gives up on a topic that is gone. A receiver that just waited on would look idle.
func TestReceiverReportsItsEnd(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	b := connect(t, declared(n, "order", "s"))
	r, err := b.Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "s"})
	require.NoError(t, err)
	forbidAutoCreation(t, n)
	require.NoError(t, n.Admin(t.Context(), http.MethodDelete, "/persistent/"+n.Name+"/order/partitions?force=true", ""))
	for range 2 {
		_, err = r.Receive(patient(t))
		require.ErrorContains(t, err, `subscription "s" of topic "order"`)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	}
	require.NoError(t, r.Close())
	_, err = r.Receive(t.Context())
	require.ErrorIs(t, err, messaging.ErrClosed)
}

func TestSubscribeToATopicInTrouble(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	b := connect(t, declared(n, "order", "s"))
	first, err := b.Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "s"})
	require.NoError(t, err)
	_, err = b.Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "s", Type: messaging.Shared})
	requireTopicError(t, err, "order")
	require.NoError(t, first.Close())
}
