package pulsar

import (
	"bytes"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
)

// A partition moves while the broker is writing to the consumer that had it, and that write ends before the broker goes
// back: it reads on where it was, for the other one, which must not see that.
//
// When that reading ends in the moment in which the broker goes back, nothing tells it from what is in order (see turn), and on a busy
// machine it takes long. So the partition may have to move again. Without the guard the order breaks each time.
func TestPartitionMovesDuringAWrite(t *testing.T) {
	t.Parallel()
	const most = 5
	for name, returns := range map[string]bool{"to a new consumer": false, "to a consumer that was away": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := 1; ; n++ {
				got, ordered := movesDuringAWrite(t, returns)
				if ordered {
					return
				}
				t.Log("not in order:", got)
				require.Less(t, n, most, "the order breaks each time")
			}
		})
	}
}

// movesDuringAWrite has a partition move once, and returns the numbers of the messages that its new consumer got, up to the first
// that is not in order.
func movesDuringAWrite(t *testing.T, returns bool) (got []int64, ordered bool) {
	t.Helper()
	const small, large, queue = 10, 30, 1000
	msgs := series("order", 1, small+large) // more than the sockets hold
	for i := range msgs[small:] {
		msgs[small+i].Payload = bytes.Repeat([]byte{'x'}, 1<<20)
	}
	n := pulsartest.Open(t)
	cfg := declared(n, "order", "s")
	cfg.Partitions, cfg.DisableBatching = 1, true
	b := connect(t, cfg)
	join := func(name string) (messaging.Receiver, *proxy) {
		p := newProxy(t, n.URL)
		own := config(n)
		own.URL = p.url()
		r, err := connect(t, own).Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "s", Consumer: name, Queue: queue})
		require.NoError(t, err)
		return r, p
	}
	require.NoError(t, b.Publish(patient(t), msgs[:small]))
	receive := func(r messaging.Receiver, upTo int64) bool {
		for next := int64(len(got)); next < upTo; {
			m, err := r.Receive(patient(t))
			require.NoError(t, err)
			got = append(got, m.Sequence)
			if m.Sequence > next+1 {
				return false
			}
			next = max(next, m.Sequence)
		}
		return true
	}

	var first messaging.Receiver // the broker prefers it to the other one, by its name
	var way *proxy
	if returns {
		first, way = join("a")
		require.True(t, receive(first, small), "nothing has moved, got %v", got)
		way.closed.Store(true)
		way.cut()
	}
	second, slow := join("b")
	for range small {
		_, err := second.Receive(patient(t))
		require.NoError(t, err)
	}
	slow.choked.Lock()
	flow := sync.OnceFunc(slow.choked.Unlock)
	t.Cleanup(flow)
	require.NoError(t, b.Publish(patient(t), msgs[small:]))
	await.True(t, func() bool { return permits(t, b)["b"] < queue-small }, "the broker writes to the second consumer")
	if returns {
		way.closed.Store(false)
	} else {
		first, _ = join("a")
	}
	await.True(t, func() bool { return permits(t, b)["a"] > 0 }, "the first consumer asks for messages")
	flow()
	ordered = receive(first, small+large)
	return got, ordered
}

// permits is how many more messages each consumer wants, as far as the broker knows.
func permits(t *testing.T, b *Broker) map[string]int {
	t.Helper()
	parts, err := b.keeper.Admin.Backlogs(t.Context(), "order", "s")
	require.NoError(t, err)
	byName := map[string]int{}
	for _, part := range parts {
		for _, c := range part.Consumers {
			if part.Partition == 0 {
				byName[c.Name] = c.Permits
			}
		}
	}
	return byName
}

// placed is a message of partition 1 with a place.
type placed struct {
	wireMessage

	id pulsarclient.MessageID
}

func (p *placed) ID() pulsarclient.MessageID { return p.id }
func (*placed) RedeliveryCount() uint32      { return 0 }

// arrives says whether a receiver delivers a message, as the client has it.
func arrives(t *testing.T, r *receiver, c *fakeConsumer, ledger, entry int64, batch int32) bool {
	t.Helper()
	m := pulsarclient.ConsumerMessage{Consumer: c, Message: &placed{
		wireMessage{properties: map[string]string{"ce_id": "1", propEarly: "somebody's"}}, pulsarclient.NewMessageID(ledger, entry, batch, 1),
	}}
	r.turns.arrived(m)
	c.messages <- m
	got := hear(t, r, time.Nanosecond)
	if got == nil {
		return false
	}
	require.Equal(t, "somebody's", got.Metadata[propEarly])
	require.NoError(t, r.Ack(t.Context(), got))
	return true
}

// pass lets time pass, and lets everything happen that is due by then.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// askedFor are the partitions which a receiver asked for.
func askedFor(r *receiver, c *fakeConsumer) []int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(c.asked)
}

func TestTurn(t *testing.T) {
	test := func(name string, f func(t *testing.T, r *receiver, c *fakeConsumer)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, c := fakeReceiver(messaging.Failover)
				f(t, r, c)
				require.NoError(t, r.Close())
				asked := len(askedFor(r, c))
				pass(time.Hour)
				require.Len(t, askedFor(r, c), asked)
			})
		})
	}
	test("the broker's word", func(t *testing.T, r *receiver, c *fakeConsumer) {
		r.turns.BecameActive(c, "order", 1)
		require.True(t, arrives(t, r, c, 1, 7, 0))
		require.True(t, arrives(t, r, c, 1, 9, 0), "8 is acknowledged")
		r.turns.BecameInactive(c, "order", 1)
		require.False(t, arrives(t, r, c, 1, 5, 0))
	})
	test("early ones come again", func(t *testing.T, r *receiver, c *fakeConsumer) {
		require.False(t, arrives(t, r, c, 1, 7, 0))
		require.False(t, arrives(t, r, c, 1, 7, 1))
		r.turns.BecameActive(c, "order", 1)
		require.False(t, arrives(t, r, c, 1, 8, 0), "was on its way")
		require.True(t, arrives(t, r, c, 1, 5, 0))
		require.True(t, arrives(t, r, c, 1, 6, 0))
		pass(time.Hour)
		require.Empty(t, askedFor(r, c))
	})
	test("the broker does not read", func(t *testing.T, r *receiver, c *fakeConsumer) {
		require.False(t, arrives(t, r, c, 1, 7, 0))
		r.turns.BecameActive(c, "order", 1)
		require.Empty(t, askedFor(r, c))
		pass(turnPatience)
		require.Equal(t, []int32{1}, askedFor(r, c))
		require.False(t, arrives(t, r, c, 1, 9, 0), "somebody removed the others")
		pass(wordPatience)
		require.Equal(t, []int32{1, 1}, askedFor(r, c))
		require.True(t, arrives(t, r, c, 1, 9, 0))
	})
	test("no word", func(t *testing.T, r *receiver, c *fakeConsumer) {
		require.False(t, arrives(t, r, c, 1, 7, 0))
		pass(wordPatience)
		require.Equal(t, []int32{1}, askedFor(r, c))
		require.True(t, arrives(t, r, c, 1, 7, 0))
	})
	test("what was early is another one's", func(t *testing.T, r *receiver, c *fakeConsumer) {
		require.False(t, arrives(t, r, c, 1, 7, 0))
		r.turns.BecameInactive(c, "order", 1)
		pass(time.Hour)
		require.Empty(t, askedFor(r, c))
		r.turns.BecameActive(c, "order", 1)
		require.True(t, arrives(t, r, c, 1, 9, 0))
	})
	test("nothing at all", func(t *testing.T, r *receiver, c *fakeConsumer) {
		r.turns.BecameActive(c, "order", 1)
		pass(time.Hour)
		require.Equal(t, []int32{1}, askedFor(r, c), "once")
		r.mu.Lock()
		r.silence.broken() // the other partitions flow
		r.mu.Unlock()
		r.turns.reconnect()
		require.False(t, arrives(t, r, c, 1, 7, 0), "there may be others before it")
		pass(wordPatience)
		require.Equal(t, []int32{1, 1}, askedFor(r, c))
		require.True(t, arrives(t, r, c, 1, 7, 0))
		r.mu.Lock()
		r.silence.inHand[1] = 1
		r.mu.Unlock()
		r.turns.BecameActive(c, "order", 1)
		pass(time.Hour)
		require.Len(t, askedFor(r, c), 2, "it would come twice")
	})
	test("another connection", func(t *testing.T, r *receiver, c *fakeConsumer) {
		r.turns.BecameActive(c, "order", 1)
		require.True(t, arrives(t, r, c, 1, 6, 0))
		for _, m := range []struct {
			ledger, entry int64
			batch         int32
			ok            bool
		}{{1, 7, 0, true}, {1, 7, 1, true}, {1, 8, 0, true}, {2, 0, 0, true}, {1, 7, 0, true}, {1, 9, 0, false}, {1, 10, 0, false}, {1, 10, 0, true}} {
			r.turns.reconnect()
			require.Equal(t, m.ok, arrives(t, r, c, m.ledger, m.entry, m.batch), "%v", m)
		}
		r.turns.reconnect()
		r.turns.BecameActive(c, "order", 1)
		require.True(t, arrives(t, r, c, 1, 20, 0))
	})
}
