package pulsar

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/count"
)

// estimated is a topic with batches of known sizes, and a subscription that has one partition.
type estimated struct {
	t      *testing.T
	n      *pulsartest.Namespace
	broker *Broker
	topic  string
}

func estimate(t *testing.T, n *pulsartest.Namespace, b *Broker, topic string) *estimated {
	t.Helper()
	require.NoError(t, b.Declare(patient(t), nil, []messaging.Subscription{{Topic: topic, Name: "mailer", Type: messaging.Shared}}))
	return &estimated{t, n, b, topic}
}

// publish stores a batch of each size, as one entry.
func (e *estimated) publish(batches int, size func(n int) int) (messages int64) {
	e.t.Helper()
	p, err := e.broker.client.CreateProducer(pulsarclient.ProducerOptions{
		Topic: e.n.Topic(e.topic) + "-partition-0", BatchingMaxMessages: 1000, BatchingMaxPublishDelay: hang, MaxPendingMessages: 10000,
		SendTimeout: -1, // the goroutine that watches it outlives the producer
	})
	require.NoError(e.t, err)
	defer p.Close()
	for n := range batches {
		for range size(n) {
			p.SendAsync(patient(e.t), &pulsarclient.ProducerMessage{Payload: make([]byte, 100)},
				func(_ pulsarclient.MessageID, _ *pulsarclient.ProducerMessage, err error) {
					if err != nil {
						e.t.Error(err)
					}
				})
			messages++
		}
		require.NoError(e.t, p.FlushWithCtx(patient(e.t)))
	}
	return messages
}

// settle receives messages, and settles those of the entries that are chosen.
func (e *estimated) settle(messages int64, chosen func(entry int64) bool) (left int64) {
	e.t.Helper()
	c, err := e.broker.client.Subscribe(pulsarclient.ConsumerOptions{
		Topic: e.n.Topic(e.topic) + "-partition-0", SubscriptionName: "mailer", Type: pulsarclient.Shared, AckWithResponse: true,
	})
	require.NoError(e.t, err)
	defer c.Close()
	for range messages {
		m, err := c.Receive(patient(e.t))
		require.NoError(e.t, err)
		if chosen(m.ID().EntryID()) {
			require.NoError(e.t, c.Ack(m))
		} else {
			left++
		}
	}
	return left
}

// read asks until the broker has so many entries: it counts them a moment late.
func (e *estimated) read(entries int64) (s messaging.SubscriptionState) {
	e.t.Helper()
	await.True(e.t, func() bool {
		parts, err := e.broker.keeper.Admin.Backlogs(patient(e.t), e.topic, "mailer")
		return err == nil && len(parts) == 1 && parts[0].Waiting == entries
	}, "%d entries wait", entries)
	s, err := e.broker.ReadSubscription(patient(e.t), e.topic, "mailer")
	require.NoError(e.t, err)
	return s
}

// The number of waiting messages is about right, whatever the batches are like and whatever was before. It is a lower bound only where the role may not
// look at messages.
func TestHowManyMessagesWait(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	n.Retain(t)
	cfg := config(n)
	cfg.Partitions = 1
	b := connect(t, cfg)
	all := func(int64) bool { return true }
	about := func(want int64, s messaging.SubscriptionState) {
		t.Helper()
		require.Equal(t, count.Estimated, s.Precision)
		require.InEpsilon(t, want, s.Messages, 0.15)
	}
	of := func(size int) func(int) int { return func(int) int { return size } }

	e := estimate(t, n, b, "single")
	require.Equal(t, messaging.SubscriptionState{}, e.read(0))
	begin := time.Now()
	e.publish(5, of(1))
	s := e.read(5)
	require.EqualValues(t, 5, s.Messages)
	require.Equal(t, count.Exact, s.Precision)
	require.WithinRange(t, s.Oldest, begin.Add(-time.Millisecond), time.Now())
	e.settle(5, func(entry int64) bool { return entry < 3 })
	require.True(t, e.read(2).Oldest.After(s.Oldest))

	e = estimate(t, n, b, "even")
	waits := e.publish(60, of(20))
	require.Equal(t, waits, e.read(60).Messages)
	require.NoError(t, n.Admin(patient(t), http.MethodPut, "/persistent/"+n.Name+"/even-partition-0/unload", ""))
	about(waits, e.read(60)) // the counters of the broker began again

	e = estimate(t, n, b, "flood") // until now came one message at a time
	e.settle(e.publish(200, of(1)), all)
	about(e.publish(60, func(n int) int { return 30 + n%20 }), e.read(60))

	e = estimate(t, n, b, "odd") // few of the batches have most of the messages
	about(e.publish(150, func(n int) int { return 1 + n%2*50 }), e.read(150))

	e = estimate(t, n, b, "holes") // the entries that wait have other sizes than those between them, which were settled
	sent := e.publish(300, func(n int) int { return map[bool]int{true: 4, false: 12}[n%5 == 0] })
	about(e.settle(sent, func(entry int64) bool { return entry%5 != 0 }), e.read(60))

	e = estimate(t, n, b, "begun") // of the batch that is in work, some messages are settled
	e.publish(9, of(20))
	e.settle(1, all)
	about(179, e.read(9))
}

// What cannot be looked at is counted by its entries: if the role may not, if all is settled before the look, or if it takes too long.
func TestEntriesThatCannotBeLookedAt(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	to, err := url.Parse(n.AdminURL)
	require.NoError(t, err)
	var looks, reads atomic.Int32
	var refuses atomic.Int64 // with this status; 0: nothing
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodHead:
			looks.Add(1)
			if status := refuses.Load(); status != 0 {
				w.WriteHeader(int(status))
				return
			}
		case r.URL.Query().Has("getEarliestTimeInBacklog"):
			reads.Add(1)
		}
		(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}).ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	cfg := config(n)
	cfg.Partitions, cfg.AdminURL = 1, server.URL
	e := estimate(t, n, connect(t, cfg), "order")
	e.publish(12, func(int) int { return 10 })
	for status, requests := range map[int64][]int32{0: {8, 1}, http.StatusForbidden: {8, 1}, http.StatusNotFound: {24, 2}} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			e.t = t
			looks.Store(0)
			reads.Store(0)
			refuses.Store(status)
			s := e.read(12)
			if status == 0 {
				require.Equal(t, []any{int64(120), count.Estimated}, []any{s.Messages, s.Precision})
			} else {
				require.Equal(t, []any{int64(12), count.AtLeast}, []any{s.Messages, s.Precision})
			}
			require.False(t, s.Oldest.IsZero())
			made := []int32{looks.Load(), reads.Load()}
			require.Equal(t, requests, made)
		})
	}
	refuses.Store(0)
	e.t, e.broker.keeper.Admin.LookFor = t, time.Nanosecond
	require.Equal(t, count.AtLeast, e.read(12).Precision, "there is no time to look")
}
