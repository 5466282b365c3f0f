package pulsar

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/messaging"
)

// joining hands out a consumer for each subscription.
type joining struct {
	fakeClient

	next []*fakeConsumer
}

func (j *joining) Subscribe(pulsarclient.ConsumerOptions) (pulsarclient.Consumer, error) {
	c := j.next[0]
	j.next = j.next[1:]
	return c, nil
}

// The client empties its queue over a living connection. The receiver subscribes again, so that the broker delivers the dropped messages before later ones.
func TestDroppedMessagesComeAgain(t *testing.T) {
	for name, laterOne := range map[string]bool{"before a later message": true, "without a later message": false} {
		for _, kind := range []messaging.SubscriptionType{messaging.Failover, messaging.KeyShared, messaging.Shared} {
			t.Run(kind.String()+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var log logbook.Book
					r, first := fakeReceiver(kind)
					second := &fakeConsumer{messages: make(chan pulsarclient.ConsumerMessage, 10)}
					r.broker.client, r.broker.open = &joining{next: []*fakeConsumer{second}}, t.Context()
					r.broker.log, r.broker.cfg.ConnectTimeout = log.Logger(), time.Hour
					r.turns.BecameActive(first, "", 1)
					arrive := func(c *fakeConsumer, entry int64) pulsarclient.ConsumerMessage {
						m := pulsarclient.ConsumerMessage{Consumer: c, Message: &placed{
							wireMessage{properties: map[string]string{"ce_id": strconv.Itoa(int(entry))}}, pulsarclient.NewMessageID(1, entry, -1, 1),
						}}
						watch{r}.BeforeConsume(m)
						return m
					}
					receive := func() string {
						m, err := r.Receive(patient(t))
						require.NoError(t, err)
						return m.ID
					}

					first.messages <- arrive(first, 0)
					require.Equal(t, "0", receive())
					arrive(first, 1) // and the client drops it
					if laterOne {
						first.messages <- arrive(first, 2)
					}
					go func() {
						<-time.After(time.Minute)
						r.turns.BecameActive(second, "", 1)
						for entry := range int64(3) {
							second.messages <- arrive(second, entry)
						}
					}()
					for _, id := range []string{"0", "1", "2"} {
						require.Equal(t, id, receive())
					}
					require.Contains(t, log.String(), "dropped messages")
					require.NoError(t, r.Close())
				})
			})
		}
	}
}

// A slow handler, a pause and a lost connection are no reason to subscribe again.
func TestMessagesThatWaitAreNotDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := fakeReceiver(messaging.KeyShared)
		m := pulsarclient.ConsumerMessage{Consumer: c, Message: &placed{
			wireMessage{properties: map[string]string{"ce_id": "1"}}, pulsarclient.NewMessageID(1, 1, -1, 1),
		}}
		pass(time.Hour) // in the handler
		watch{r}.BeforeConsume(m)
		require.Nil(t, hear(t, r, time.Second), "the client has not handed it over yet")
		r.Pause()
		require.Nil(t, hear(t, r, time.Hour))
		r.links.begin(1)
		r.links.lose(1, newReconnect())
		r.Resume()
		require.Nil(t, hear(t, r, time.Hour))
		c.messages <- m
		require.NotNil(t, hear(t, r, time.Second))
		require.NoError(t, r.Close())
	})
}
