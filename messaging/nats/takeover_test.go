package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	natsclient "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/linktest"
	"github.com/oncebox/oncebox/messaging"
)

// events returns messages of one key with the numbers from first to last.
func events(first, last int) []event.Envelope {
	var msgs []event.Envelope
	for n := first; n <= last; n++ {
		msgs = append(msgs, event.Envelope{
			ID: fmt.Sprintf("e-%d", n), Type: "t", Source: "s", Topic: "order", RoutingKey: "k", Sequence: int64(n), OccurredAt: time.Unix(1, 0),
		})
	}
	return msgs
}

func subscribe(t *testing.T, b *Broker, s messaging.Subscription) messaging.Receiver {
	t.Helper()
	s.Topic = "order"
	r, err := b.Subscribe(t.Context(), s)
	require.NoError(t, err)
	return r
}

// receive receives n messages and returns their numbers. With settle it acknowledges them.
func receive(t *testing.T, r messaging.Receiver, n int, settle bool) (numbers []int64) {
	t.Helper()
	ctx, done := await.Context(t.Context(), t, "%d messages", n)
	defer done()
	for range n {
		m, err := r.Receive(ctx)
		require.NoError(t, err, "after %v", numbers)
		numbers = append(numbers, m.Sequence)
		if settle {
			require.NoError(t, r.Ack(ctx, m))
		}
	}
	return numbers
}

func numbers(first, last int) (all []int64) {
	for n := first; n <= last; n++ {
		all = append(all, int64(n))
	}
	return all
}

// A process that the server does not hear any more loses its partition. The next one begins at the first unsettled message, and the silent process, which
// does not know of it, hands out nothing more of what waits in it.
func TestSilentProcessLosesItsPartition(t *testing.T) {
	t.Parallel()
	server := serve(t)
	link := linktest.New(t, server.URL())
	ofSilent, ofNext := config(link.URL), config(server.URL())
	ofSilent.TakeoverTimeout, ofNext.TakeoverTimeout = 15*time.Second, 15*time.Second // a standstill of the test silences nobody
	silent, next := connect(t, ofSilent), connect(t, ofNext)
	a := subscribe(t, silent, messaging.Subscription{Name: "billing", Consumer: "a"})
	require.NoError(t, next.Publish(t.Context(), events(1, 40)))
	require.Equal(t, numbers(1, 1), receive(t, a, 1, true))
	require.Equal(t, numbers(2, 5), receive(t, a, 4, false))

	link.SetFrozen(true)
	b := subscribe(t, next, messaging.Subscription{Name: "billing", Consumer: "b"})
	first := receive(t, b, 1, true)
	late, end := context.WithCancel(t.Context())
	handedOut := make(chan *messaging.Message, 1)
	go func() {
		m, _ := a.Receive(late) // the error is that of late
		handedOut <- m
	}()
	rest := receive(t, b, 38, true)
	end()
	require.Nil(t, <-handedOut, "the silent process hands out a message that another one has")
	require.Subset(t, []int64{1, 2}, first, "the acknowledgement of 1 may be lost")
	want := numbers(int(first[0]), int(first[0])+38)
	require.Equal(t, want, append(first, rest...))

	link.SetFrozen(false)
	require.NoError(t, next.Publish(t.Context(), events(41, 41)))
	require.NoError(t, b.Close())
	for got := receive(t, a, 1, true); got[0] != 41; {
		got = receive(t, a, 1, true)
	}
}

// If a delivery does not arrive, for whatever reason, no later message is handed out before it comes again.
func TestGapInTheDeliveries(t *testing.T) {
	t.Parallel()
	server := serve(t)
	b := connect(t, config(server.URL()))
	r := subscribe(t, b, messaging.Subscription{Name: "billing", Queue: 1})
	require.NoError(t, b.Publish(t.Context(), events(1, 1)))
	require.Equal(t, numbers(1, 1), receive(t, r, 1, true))
	r.Pause()

	// A thief fetches with the pin of the receiver.
	name := ""
	pin := ""
	for p := range 8 {
		c, err := b.session.Consumer(t.Context(), "oncebox-order", b.Consumer("billing", p))
		require.NoError(t, err)
		if groups := c.CachedInfo().PriorityGroups; groups[0].PinnedClientID != "" {
			name, pin = c.CachedInfo().Name, groups[0].PinnedClientID
		}
	}
	require.NotEmpty(t, pin)
	thief, err := natsclient.Connect(server.URL())
	require.NoError(t, err)
	defer thief.Close()
	loot, err := thief.SubscribeSync(thief.NewInbox())
	require.NoError(t, err)
	body, err := json.Marshal(map[string]any{"batch": 3, "expires": 10 * time.Second, "group": "oncebox", "id": pin})
	require.NoError(t, err)
	require.NoError(t, thief.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.oncebox-order."+name, loot.Subject, body))
	require.NoError(t, thief.Flush())
	require.NoError(t, b.Publish(t.Context(), events(2, 10)))
	_, err = loot.NextMsg(10 * time.Second)
	require.NoError(t, err, "nothing was stolen")

	r.Resume()
	seen := map[int64]bool{}
	var first []int64
	for len(first) < 9 {
		if got := receive(t, r, 1, true); !seen[got[0]] {
			seen[got[0]] = true
			first = append(first, got[0])
		}
	}
	require.Equal(t, numbers(2, 10), first)
}

// A process that gives a partition to another one waits for its handlers: the other one gets no message that is in work.
func TestHandoverWaitsForHandlers(t *testing.T) {
	t.Parallel()
	server := serve(t)
	cfg := config(server.URL())
	cfg.Partitions, cfg.HandoverTimeout, cfg.TakeoverTimeout = 1, time.Hour, time.Hour // nobody is missed
	b := connect(t, cfg)
	z := subscribe(t, b, messaging.Subscription{Name: "billing", Consumer: "z"})
	require.NoError(t, b.Publish(t.Context(), events(1, 3)))
	m, err := z.Receive(t.Context())
	require.NoError(t, err)
	z.Pause() // until it knows of the other one
	answers, err := b.session.Conn.SubscribeSync(b.Members(&messaging.Subscription{Topic: "order", Name: "billing"}))
	require.NoError(t, err)
	a := subscribe(t, b, messaging.Subscription{Name: "billing", Consumer: "a"}) // it comes before z, so the only partition is its
	for answer := ""; !strings.Contains(answer, `"name":"z"`); {
		got, err := answers.NextMsg(5 * time.Minute)
		require.NoError(t, err)
		answer = string(got.Data)
	}
	z.Resume()
	got := make(chan []int64, 1)
	go func() {
		var all []int64
		for range 2 {
			m, err := a.Receive(t.Context())
			if err == nil {
				all, err = append(all, m.Sequence), a.Ack(t.Context(), m)
			}
			if err != nil {
				break
			}
		}
		got <- all
	}()
	moment, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = z.Receive(moment)
	require.ErrorIs(t, err, context.DeadlineExceeded, "a message was handed out while another process waits for the partition")
	require.Empty(t, got, "the other process got messages while a message was in work")
	require.NoError(t, z.Ack(t.Context(), m))
	require.Equal(t, numbers(2, 3), <-got, "what was settled before the handover does not come again")
}

// nothing reports whether a receiver gets no message for longer than the server waits for a silent process.
func nothing(t *testing.T, r messaging.Receiver) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
	defer cancel()
	_, err := r.Receive(ctx)
	return errors.Is(err, context.DeadlineExceeded)
}

// sometime waits until ok returns true. The server misses a process that stands still for a second, as it should, so a busy machine needs several tries.
// Without what the test is about, each of them fails.
func sometime(t *testing.T, ok func(*Broker) bool, what string) {
	t.Helper()
	await.True(t, func() bool {
		b, err := Connect(t.Context(), config(serve(t).URL()))
		require.NoError(t, err)
		defer b.Close()
		return ok(b)
	}, what)
}

// A message of a shared subscription that is in work for long comes to no other process.
func TestSharedMessageStaysInWork(t *testing.T) {
	t.Parallel()
	s := messaging.Subscription{Name: "billing", Type: messaging.Shared}
	sometime(t, func(b *Broker) bool {
		r := subscribe(t, b, s)
		require.NoError(t, b.Publish(t.Context(), events(1, 1)))
		m, err := r.Receive(t.Context())
		require.NoError(t, err)
		other := nothing(t, subscribe(t, b, s))
		c, err := b.session.Consumer(t.Context(), "oncebox-order", "billing")
		require.NoError(t, err)
		require.NoError(t, r.Ack(t.Context(), m))
		return other && c.CachedInfo().NumRedelivered == 0
	}, "it comes to no other process, nor to this one again: the server shows that it still has the request")
}

// A process that fetches nothing, because it is paused or its queue is full, keeps its partitions: nothing comes again.
func TestIdleProcessKeepsItsPartitions(t *testing.T) {
	t.Parallel()
	sometime(t, func(b *Broker) bool {
		r := subscribe(t, b, messaging.Subscription{Name: "billing", Queue: 2})
		require.NoError(t, b.Publish(t.Context(), events(1, 10)))
		begun := slices.Equal(numbers(1, 2), receive(t, r, 2, true)) && slices.Equal(numbers(3, 3), receive(t, r, 1, false))
		r.Pause()
		require.True(t, nothing(t, r), "it is paused")
		r.Resume()
		return begun && slices.Equal(numbers(4, 10), receive(t, r, 7, true))
	}, "3 stays in work")
}

// A receiver that closes lets others have its messages at once, and not only when the server misses it.
func TestClosedReceiverIsNotMissedFirst(t *testing.T) {
	t.Parallel()
	cfg := config(serve(t).URL())
	cfg.TakeoverTimeout = time.Hour
	b := connect(t, cfg)
	require.NoError(t, b.Publish(t.Context(), events(1, 3)))
	for _, kind := range []messaging.SubscriptionType{messaging.Failover, messaging.Shared} {
		s := messaging.Subscription{Name: kind.String(), Type: kind}
		r := subscribe(t, b, s)
		receive(t, r, 2, false)
		require.NoError(t, r.Close())
		require.ElementsMatch(t, numbers(1, 3), receive(t, subscribe(t, b, s), 3, true))
	}
}
